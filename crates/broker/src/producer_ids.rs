//! Ids for producers. The controller gives them out in blocks, so that an id costs no write to the metadata log; what is
//! left of a block when the broker stops is lost.

use std::ops::Range;

use milena_controller::{ProducerIdBlock, Records, allocate_producer_ids};
use milena_metadata::Image;
use milena_protocol::ErrorCode;
use tokio::sync::Mutex;

use crate::controller::ControllerHandle;

/// The ids this broker may give out.
#[derive(Default)]
pub struct ProducerIds {
    /// Ids of the current block that are left. Locked while the next block is fetched: whoever else needs an id waits.
    left: Mutex<Range<i64>>,
}

impl ProducerIds {
    /// An id that no producer ever had; `broker` is who gives it out.
    ///
    /// # Errors
    /// When a new block is needed and can't be had: COORDINATOR_LOAD_IN_PROGRESS when it may be had later.
    pub async fn next(&self, broker: i32, controller: &ControllerHandle) -> Result<i64, ErrorCode> {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            let allocated = controller.change(move |view| next_block(view.image, broker)).await;
            let block = allocated.map_err(|_| ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)??;
            *left = block.first..block.first + block.length;
        }
        left.next().ok_or(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
    }
}

fn next_block(image: &Image, broker: i32) -> (Records, Result<ProducerIdBlock, ErrorCode>) {
    let epoch = image.cluster().broker(broker).map_or(-1, |registered| registered.epoch);
    match allocate_producer_ids(image, broker, epoch) {
        Ok((records, block)) => (records, Ok(block)),
        Err(refusal) => (Vec::new(), Err(refusal.code)),
    }
}

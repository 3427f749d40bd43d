//! From frames to handlers: header, version range, registry lookup. What an API does is its handler's business.

use std::sync::Arc;

use milena_net::{Frames, Outgoing, Peer as NetPeer, Pipelining, Replies, Reply, Service};
use milena_protocol::ApiKey;
use smallvec::SmallVec;

use crate::decided;
use crate::handlers::{api_versions, produce};
use crate::registry::{self, Api, Handler};
use crate::request::{Call, Header, OwnedRequest, Refusal};
use crate::services::Services;
use crate::session::Peer;

/// Most Produce requests that are taken together.
const MOST_TAKEN_TOGETHER: usize = 256;

/// The broker as connections see it.
pub struct Dispatch {
    services: Arc<Services>,
    /// Versions of APIs that are not final are offered.
    unstable: bool,
}

impl Dispatch {
    /// Serves requests with `services`.
    pub fn new(services: Arc<Services>) -> Self {
        let unstable = services.config().unstable_api_versions_enable();
        Self { services, unstable }
    }

    fn serve_one(&self, frame: &mut [u8], peer: &Peer, replies: &mut Replies<'_>) -> Result<(), Refusal> {
        let (header, body_at) = Header::parse(frame)?;
        let call = Call { header, body: &frame[body_at..], peer, claim: None };
        let api = match find(&call.header, self.unstable) {
            Ok(api) => api,
            Err(_) if call.header.key == ApiKey::API_VERSIONS => {
                return replies.try_ready(|out| api_versions::unsupported(&call, out));
            }
            Err(refusal) => return Err(refusal),
        };
        match api.handler {
            Handler::Now(handle) => replies.try_ready(|out| handle(&call, &self.services, out)),
            Handler::Either(handle) => handle(&call, &self.services, replies),
            Handler::Produce => unreachable!("serve_produce takes every version that is served"),
            Handler::Decided(decide, refuse) => {
                let request = OwnedRequest::new(&call, replies);
                later(decided::answer(request, self.services.controller.clone(), decide, refuse), replies);
                Ok(())
            }
            Handler::Later(handle) => {
                let request = OwnedRequest::new(&call, replies);
                later(handle(request, Arc::clone(&self.services)), replies);
                Ok(())
            }
        }
    }

    /// Takes the Produce requests at the front together; `false` when there are none.
    fn serve_produce(&self, frames: &mut Frames<'_>, replies: &mut Replies<'_>) -> Result<bool, Refusal> {
        let mut taken: SmallVec<[&mut [u8]; 8]> = SmallVec::new();
        while taken.len() < MOST_TAKEN_TOGETHER && frames.peek().is_some_and(is_produce) {
            taken.extend(frames.take());
        }
        if taken.is_empty() {
            return Ok(false);
        }
        produce::serve(&mut taken, &self.services, replies)?;
        Ok(true)
    }
}

/// Answers when `answer` is there; later requests of the connection wait.
pub fn later(answer: impl Future<Output = Result<Reply, Refusal>> + 'static, replies: &mut Replies<'_>) {
    let reply = async move { answer.await.unwrap_or_else(|refusal| Reply::close(refusal.to_string())) };
    replies.later(Box::pin(reply), Pipelining::Hold);
}

/// Has a reader thread answer a request that looks at files, or takes many locks.
///
/// # Errors
/// Those of `handle`.
pub async fn read(
    request: OwnedRequest,
    services: Arc<Services>,
    handle: fn(&Call<'_>, &Services, &mut Outgoing) -> Result<(), Refusal>,
) -> Result<Reply, Refusal> {
    let readers = services.readers.clone();
    let answered = readers.ask(move || {
        let mut out = Outgoing::new();
        handle(&request.call(), &services, &mut out).map(|()| out)
    });
    answered.await.map_or_else(|| Ok(Reply::close("its read was given up")), |out| out.map(Reply::frame))
}

/// The API that serves a request.
fn find(header: &Header<'_>, unstable: bool) -> Result<&'static Api, Refusal> {
    registry::find(header.key)
        .filter(|api| (*api.versions.start()..=api.newest(unstable)).contains(&header.version))
        .ok_or(Refusal::Unsupported { key: header.key.0, version: header.version })
}

/// Whether a frame is a Produce request of a version that is served.
fn is_produce(frame: &[u8]) -> bool {
    let Some(&[k0, k1, v0, v1]) = frame.first_chunk::<4>() else { return false };
    let (key, version) = (i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1]));
    key == ApiKey::PRODUCE.0 && produce::API.versions.contains(&version)
}

impl Service for Dispatch {
    type Session = Peer;

    fn connect(&self, peer: &NetPeer) -> Peer {
        Arc::new(peer.clone())
    }

    fn serve(&self, peer: &mut Peer, frames: &mut Frames<'_>, replies: &mut Replies<'_>) {
        let served = match self.serve_produce(frames, replies) {
            Ok(false) => frames.take().map_or(Ok(()), |frame| self.serve_one(frame, peer, replies)),
            Ok(true) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = served {
            replies.close(refusal.to_string());
        }
    }

    fn disconnect(&self, _peer: Peer) {}
}

/// A later answer that is a whole frame.
///
/// # Errors
/// Those of `write`.
pub fn frame(write: impl FnOnce(&mut Outgoing) -> Result<(), Refusal>) -> Result<Reply, Refusal> {
    let mut out = Outgoing::new();
    write(&mut out)?;
    Ok(Reply::frame(out))
}

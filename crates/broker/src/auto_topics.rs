//! Topics that come into being because somebody asks for them. The asker is not kept waiting: it asks again.

use milena_controller::{View, create_topic_automatically};
use milena_io::RealRng;

use crate::ports::Ports;

/// Has topics created that do not exist. Whatever forbids one is not told: it stays unknown.
pub fn create<'n>(names: impl IntoIterator<Item = &'n str>, ports: &Ports) {
    for name in names {
        let name = name.to_owned();
        let create = move |view: View<'_>| {
            create_topic_automatically(view, &name, &mut RealRng).unwrap_or_else(|refusal| {
                tracing::debug!(name, %refusal, "a topic is not created automatically");
                Vec::new()
            })
        };
        if !ports.controller.try_change(create) {
            return;
        }
    }
}

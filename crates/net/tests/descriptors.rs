//! Running out of file descriptors. Alone in its process, whose limit it lowers.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;

use common::{Client, Running, config};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn without_descriptors_the_connections_that_are_there_go_on_and_others_wait() {
    let running = Running::start(config());
    let mut first = running.connect();
    first.echo(b"r0");
    // A client that has its descriptor, while the server will find none.
    let mut second = Client::connect(running.address());
    second.echo(b"r0");
    let old = getrlimit(Resource::Nofile);
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    // The client's own end takes the last one.
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest_free + 1), ..old }).unwrap();
    let mut third = Client::connect(running.address());
    third.send(&[b"r1"]);
    for _ in 0..10 {
        first.echo(b"r2");
    }
    assert_eq!(running.server.connections(), 2);
    setrlimit(Resource::Nofile, old).unwrap();
    assert_eq!(third.receive(), b"r1");
}

//! A start that can't be: one message that says why, and a directory that is as it was.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use milena_testkit::batch::{Batch, Stored};

use crate::common::child::Process;
use crate::common::requests::{create_topic, fetch, produce};
use crate::common::{Node, TempDir, format_directory, start};

const ANYWHERE: &str = "127.0.0.1:0";

/// Everything below a path: folders, and files with their bytes.
fn snapshot(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            all.insert(path, None);
        } else if path.exists() {
            let bytes = std::fs::read(&path).unwrap();
            all.insert(path, Some(bytes));
        }
    }
    all
}

/// Starts in vain below `root`: the message, which is one line. Nothing below `root` changes.
fn refused(root: &Path, data_dir: &Path, listen: &str, overrides: &[&str], may_format: bool) -> String {
    let before = snapshot(root);
    let error = start(data_dir, listen, overrides, may_format).err().expect("the start is refused");
    let message = error.to_string();
    assert!(!message.contains('\n') && !message.is_empty(), "{message}");
    let after = snapshot(root);
    for (path, bytes) in &after {
        assert!(before.get(path) == Some(bytes), "{} has changed: {message}", path.display());
    }
    assert_eq!(before.len(), after.len(), "a file has gone: {message}");
    message
}

fn folder() -> (TempDir, PathBuf) {
    let root = TempDir::with_prefix("milena-start-").unwrap();
    let data = root.path().join("data");
    (root, data)
}

/// A folder whose node holds a topic with records and was stopped in order.
fn used() -> (TempDir, PathBuf) {
    let mut node = Node::start();
    let mut client = node.client();
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &Batch::of(3, 1_700_000_000_000).build());
    node.stop();
    let root = node.copy();
    let data = root.path().join("data");
    (root, data)
}

#[test]
fn what_guards_or_holds_records_elsewhere_is_not_left_out_unnoticed() {
    let (root, data) = used();
    for setting in [
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "create.topic.policy.class.name=com.example.Policy",
        "remote.log.storage.system.enable=true",
    ] {
        let message = refused(root.path(), &data, ANYWHERE, &[setting], false);
        let name = setting.split('=').next().unwrap();
        assert!(message.starts_with(name), "{message}");
    }
    start(&data, ANYWHERE, &["authorizer.class.name=", "remote.log.storage.system.enable=false"], false).unwrap();
}

#[test]
fn with_a_configuration_file_nothing_is_formatted() {
    let (root, data) = folder();
    let message = refused(root.path(), &data, ANYWHERE, &[], false);
    assert!(message.contains("meta.properties"), "{message}");
    std::fs::create_dir(&data).unwrap();
    let message = refused(root.path(), &data, ANYWHERE, &[], false);
    assert!(message.contains("meta.properties"), "{message}");
}

#[test]
fn a_directory_that_holds_something_else_is_left_alone() {
    let (root, data) = folder();
    std::fs::create_dir_all(data.join("photos")).unwrap();
    std::fs::write(data.join("photos/cat.jpg"), b"meow").unwrap();
    let message = refused(root.path(), &data, ANYWHERE, &[], true);
    assert!(message.contains(data.to_str().unwrap()) && message.contains("not empty"), "{message}");
}

#[test]
fn what_is_no_directory_is_refused() {
    let (root, data) = folder();
    std::fs::write(&data, b"a file").unwrap();
    for may_format in [false, true] {
        let message = refused(root.path(), &data, ANYWHERE, &[], may_format);
        assert!(message.contains(data.to_str().unwrap()), "{message}");
        let below = data.join("below");
        let message = refused(root.path(), &below, ANYWHERE, &[], may_format);
        assert!(message.contains(below.to_str().unwrap()), "{message}");
    }
}

#[test]
fn a_port_in_use_is_named_before_anything_is_formatted() {
    let (root, data) = folder();
    let other = TcpListener::bind(ANYWHERE).unwrap();
    let address = other.local_addr().unwrap().to_string();
    let message = refused(root.path(), &data, &address, &[], true);
    assert!(message.contains(&address), "{message}");
    let (root, data) = used();
    let message = refused(root.path(), &data, &address, &[], true);
    assert!(message.contains(&address), "{message}");
}

#[test]
fn a_directory_that_another_process_serves_is_refused_and_still_served() {
    let (root, data) = folder();
    format_directory(&data);
    let process = Process::start(&data);
    let mut client = process.client();
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &Batch::of(3, 1_700_000_000_000).build());
    for may_format in [false, true] {
        let message = refused(root.path(), &data, ANYWHERE, &[], may_format);
        assert!(message.contains(data.to_str().unwrap()), "{message}");
    }
    assert_eq!(fetch(&mut client, "t", 0, 0)["highWatermark"], 3);
    assert_eq!(produce(&mut client, "t", 0, &Batch::of(1, 1_700_000_000_000).build())["baseOffset"], 3);
}

#[test]
fn a_directory_of_another_node_is_refused() {
    let (root, data) = used();
    let message = refused(root.path(), &data, ANYWHERE, &["node.id=7"], true);
    assert!(message.contains('7') && message.contains(data.to_str().unwrap()), "{message}");
}

#[test]
fn a_broken_meta_properties_is_refused() {
    let (root, data) = used();
    for text in ["version=9\nnode.id=1\ncluster.id=x\n", "version=1\nnode.id=one\ncluster.id=x\n"] {
        std::fs::write(data.join("meta.properties"), text).unwrap();
        let message = refused(root.path(), &data, ANYWHERE, &[], true);
        assert!(message.contains(data.to_str().unwrap()), "{message}");
    }
}

#[test]
fn one_directory_of_two_that_is_not_formatted_is_refused() {
    let (root, data) = used();
    let other = root.path().join("other");
    let dirs = format!("log.dirs={},{}", data.display(), other.display());
    let message = refused(root.path(), &data, ANYWHERE, &[&dirs], true);
    assert!(message.contains(other.to_str().unwrap()), "{message}");
}

#[test]
fn damage_in_the_middle_of_the_metadata_log_is_refused() {
    let (root, data) = used();
    let file = data.join("__cluster_metadata-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let batches = Stored::split(&bytes).unwrap();
    let at = batches[..2].iter().map(|batch| batch.bytes().len()).sum::<usize>() - 1;
    assert!(batches.len() > 4);
    bytes[at] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();
    let message = refused(root.path(), &data, ANYWHERE, &[], true);
    assert!(message.contains("00000000000000000000.log"), "{message}");
}

#[test]
fn a_configuration_that_is_not_served_is_refused() {
    let (root, data) = folder();
    let guarded = ["authorizer.class.name=org.example.Guard"];
    let message = refused(root.path(), &data, ANYWHERE, &guarded, true);
    assert!(message.contains("authorizer.class.name"), "{message}");
}

#[test]
fn a_missing_directory_is_formatted_when_nothing_else_was_asked_for() {
    let (_root, data) = folder();
    let broker = start(&data, ANYWHERE, &[], true).unwrap();
    assert!(!broker.report().formatted.is_empty());
    broker.stop().unwrap();
    let broker = start(&data, ANYWHERE, &[], true).unwrap();
    assert!(broker.report().formatted.is_empty() && broker.report().clean);
    broker.stop().unwrap();
}

#[test]
fn an_empty_metadata_log_beside_partitions_is_refused() {
    let (root, data) = used();
    let file = data.join("__cluster_metadata-0/00000000000000000000.log");
    let whole = std::fs::read(&file).unwrap();
    for left in [Vec::new(), vec![0; whole.len()], whole[..20].to_vec()] {
        std::fs::write(&file, left).unwrap();
        let message = refused(root.path(), &data, ANYWHERE, &[], true);
        assert!(message.contains("metadata log") && message.contains("t-0"), "{message}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(refused(root.path(), &data, ANYWHERE, &[], true).contains("t-0"));
}

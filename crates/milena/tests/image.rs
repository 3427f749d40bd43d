//! The image's entry point, `docker/run`, in a plain folder that is laid out as the image is: what test containers and compose files
//! say in the environment becomes a running broker.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use milena_client::Client;
use milena_testkit::ports;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// What test containers wait for.
const READY: &str = "Transitioning from RECOVERY to RUNNING";

/// The image's folders.
struct Image {
    root: TempDir,
}

impl Image {
    fn new() -> Self {
        let root = TempDir::with_prefix("milena-image-").unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docker");
        for dir in ["etc/kafka/docker", "opt/kafka/bin", "opt/kafka/config", "mnt/shared/config", "tmp"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for name in ["run", "server.properties"] {
            fs::copy(files.join(name), root.path().join("etc/kafka/docker").join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_milena"), root.path().join("opt/kafka/bin/milena")).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// A command with nothing in its environment but what a container has.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("KAFKA_LOG_DIRS", self.path("data"));
        command
    }

    fn run(&self) -> Command {
        self.command(self.path("etc/kafka/docker/run").to_str().unwrap())
    }
}

/// A running entry point and what it has printed.
struct Running {
    child: Child,
    lines: Vec<String>,
}

impl Running {
    /// Starts it, and waits until it is ready or has ended.
    fn start(command: &mut Command) -> Self {
        let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Vec::new();
        for line in output.by_ref().map_while(Result::ok) {
            let ready = line.contains(READY);
            lines.push(line);
            if ready {
                break;
            }
        }
        // What it says later is read too: it must not be stopped by a full pipe.
        std::thread::spawn(move || output.for_each(drop));
        Self { child, lines }
    }

    fn is_ready(&self) -> bool {
        self.lines.last().is_some_and(|line| line.contains(READY))
    }

    /// Where clients find the broker: the address that it printed.
    fn address(&self, listener: &str) -> String {
        let front = format!("milena: {listener} listens on ");
        let port =
            self.lines.iter().find_map(|line| line.strip_prefix(&front)?.rsplit(':').next()?.parse::<u16>().ok());
        format!("localhost:{}", port.unwrap_or_else(|| panic!("{:?}", self.lines)))
    }

    /// As `docker stop` does.
    fn stop(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A script that waits for the broker does not pass on what ends it.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

async fn cluster_id(bootstrap: &str) -> String {
    let client = Client::builder().bootstrap_servers(bootstrap).build().unwrap();
    client.admin().describe_cluster().await.unwrap().id
}

/// What a test container sets.
fn as_test_containers(command: &mut Command) -> &mut Command {
    command.envs([
        ("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw"),
        ("KAFKA_LISTENERS", "PLAINTEXT://:0,BROKER://:0,CONTROLLER://:9094"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("KAFKA_INTER_BROKER_LISTENER_NAME", "BROKER"),
        ("KAFKA_PROCESS_ROLES", "broker,controller"),
        ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
        ("KAFKA_NODE_ID", "1"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
        ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
        ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
        ("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", "9223372036854775807"),
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
    ])
}

#[tokio::test]
async fn a_script_that_comes_later_sets_what_clients_are_told() {
    let image = Image::new();
    let script = image.path("tmp/start.sh");
    let wait = format!("while [ ! -x {0} ]; do sleep 0.1; done; {0}", script.display());
    let mut command = image.command("sh");
    // What is mapped is decided before the broker starts.
    let port = ports::free();
    let listeners = format!("PLAINTEXT://:{port},BROKER://:0,CONTROLLER://:9094");
    as_test_containers(command.args(["-c", &wait])).env("KAFKA_LISTENERS", listeners);
    let (run, written) = (image.path("etc/kafka/docker/run"), script.with_extension("new"));
    let text = format!(
        "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port},BROKER://localhost:9093\n{}\n",
        run.display()
    );
    fs::write(&written, text).unwrap();
    fs::set_permissions(&written, fs::Permissions::from_mode(0o777)).unwrap();
    fs::rename(&written, &script).unwrap();
    let running = Running::start(&mut command);
    assert!(running.is_ready(), "{:?}", running.lines);
    assert_eq!(cluster_id(&running.address("PLAINTEXT")).await, "4L6g3nShT-eMCtK--X86sw");
}

#[tokio::test]
async fn a_stopped_container_starts_again_on_its_folder() {
    let image = Image::new();
    for round in 0..2 {
        let mut command = image.run();
        as_test_containers(&mut command)
            .env("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:0,BROKER://localhost:0");
        let running = Running::start(&mut command);
        assert!(running.is_ready(), "{round}: {:?}", running.lines);
        assert_eq!(cluster_id(&running.address("PLAINTEXT")).await, "4L6g3nShT-eMCtK--X86sw");
        assert!(running.stop().success());
    }
    assert!(image.path("data/meta.properties").exists());
}

#[tokio::test]
async fn a_mounted_file_holds_where_the_environment_says_nothing() {
    let image = Image::new();
    let defaults = fs::read_to_string(image.path("etc/kafka/docker/server.properties")).unwrap();
    let mounted = defaults.replace("9092", "0") + "num.partitions=7\n";
    fs::write(image.path("mnt/shared/config/server.properties"), mounted).unwrap();
    let running = Running::start(image.run().arg("KAFKA_DEFAULT_REPLICATION_FACTOR=1"));
    assert!(running.is_ready(), "{:?}", running.lines);
    let bootstrap = running.address("PLAINTEXT");
    assert_eq!(cluster_id(&bootstrap).await, "5L6g3nShT-eMCtK--X86sw");
    let admin = Client::builder().bootstrap_servers(&bootstrap).build().unwrap().admin();
    let topic = milena_client::admin::NewTopic::named("t");
    let created = admin.create_topics(vec![topic], false).await.unwrap().remove(0).1.unwrap();
    assert_eq!((created.partitions, created.replication_factor), (7, 1));
}

#[test]
fn the_images_own_settings_hold_when_nothing_is_said() {
    let image = Image::new();
    let defaults = image.path("etc/kafka/docker/server.properties");
    let text = fs::read_to_string(&defaults).unwrap();
    let data = format!("log.dirs={}", image.path("data").display());
    fs::write(&defaults, text.replace("9092", "0").replace("log.dirs=/tmp/kraft-combined-logs", &data)).unwrap();
    let mut command = image.run();
    command.env_remove("KAFKA_LOG_DIRS").env("KAFKA_HEAP_OPTS", "-Xmx1g");
    let running = Running::start(&mut command);
    assert!(running.is_ready(), "{:?}", running.lines);
}

#[test]
fn a_controller_alone_is_refused_an_address_for_clients() {
    let image = Image::new();
    let mut command = image.run();
    command.env("KAFKA_PROCESS_ROLES", "controller").env("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:9092");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not supported on a KRaft controller"));
}

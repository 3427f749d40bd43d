//! A node in a process of its own, for tests that kill it or want to see a directory held by another process. The process
//! is this test binary once more, told by an environment variable to serve instead of to test.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use milena_testkit::client::RawClient;

const DIRECTORY: &str = "MILENA_TEST_SERVES";
/// The test that [`serve_if_asked`] is called from.
const ENTRY: &str = "process::serves_when_started_by_another_test";
const READY: &str = "serving on ";

/// Serves until standard input ends, if this process was started for that.
pub fn serve_if_asked() {
    let Some(dir) = std::env::var_os(DIRECTORY) else { return };
    let dir = Path::new(&dir);
    let may_format = !dir.join("meta.properties").exists();
    let broker = super::start(dir, "127.0.0.1:0", super::SETTINGS, may_format).unwrap();
    println!("\n{READY}{}", broker.addresses().next().unwrap().1);
    let _ = std::io::stdin().read(&mut [0]);
    broker.stop().unwrap();
}

/// Whether a process can have disks of its own here.
pub fn can_mount() -> bool {
    Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success())
}

/// The other process; it is killed when this is dropped.
pub struct Process {
    child: Child,
    _stdin: ChildStdin,
    /// Where clients connect.
    pub address: SocketAddr,
}

impl Process {
    /// Starts a node on a directory, which it formats if it is empty.
    pub fn start(data_dir: &Path) -> Self {
        Self::run(Command::new(std::env::current_exe().unwrap()), data_dir)
    }

    /// Starts a node on a disk of its own with this size, MiB: a file system in memory at `data_dir`, which only the process sees.
    pub fn start_on_small_disk(data_dir: &Path, mib: u32) -> Self {
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"${DIRECTORY}\" && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
        Self::run(command, data_dir)
    }

    /// A path as the process sees it.
    pub fn inside(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.child.id(), path.display()))
    }

    fn run(mut command: Command, data_dir: &Path) -> Self {
        command.args(["--exact", ENTRY, "--nocapture"]).env(DIRECTORY, data_dir);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(READY).map(str::to_owned));
        let address = ready.expect("the other process serves").parse().unwrap();
        Self { child, _stdin: stdin, address }
    }

    /// A new connection.
    pub fn client(&self) -> RawClient {
        RawClient::connect(self.address).unwrap()
    }

    /// A line of the process's status, in bytes: `VmHWM` is the most memory it ever had.
    pub fn memory(&self, line: &str) -> u64 {
        super::memory(&format!("/proc/{}/status", self.child.id()), line)
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Network access of jobs, tested in network namespaces: one for the runner and one for the internet.

use std::{path::Path, process::Command, time::Duration};

use runner::{Isolation, Network};
use tokio::net::{TcpListener, TcpStream};

use crate::{RunnerFixture, must_fail};

/// The environment variable that marks the test process inside the namespaces.
const IN_NAMESPACE: &str = "GABLE_TEST_NETWORK";

/// Sets up two namespaces: this one has the addresses 9.9.9.1 and 192.168.77.1, the other one, which also resolves
/// names, 9.9.9.9 and 10.9.9.9. There are no other routes.
const SETUP_SCRIPT: &str = r#"
set -e
unshare --net -- sleep 600 &
world=$!
trap 'kill $world' EXIT
until test "$(readlink /proc/$world/ns/net)" != "$(readlink /proc/self/ns/net)"; do sleep 0.05; done
until test "$(cat /proc/$world/comm)" = sleep; do sleep 0.05; done
ip link set lo up
ip link add near type veth peer name far netns $world
ip addr add 9.9.9.1/24 dev near
ip addr add 192.168.77.1/32 dev lo
ip link set near up
in_world="nsenter --net=/proc/$world/ns/net --"
$in_world ip link set lo up
$in_world ip addr add 9.9.9.9/24 dev far
$in_world ip addr add 10.9.9.9/32 dev lo
$in_world ip link set far up
ip route add default via 9.9.9.9
$in_world perl -MIO::Socket::INET -e '
    my $server = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 7777, Listen => 5, ReuseAddr => 1) or die $!;
    while (my $client = $server->accept) { print $client "the world answers
"; close $client }' &
answering=$!
$in_world perl -MIO::Socket::INET -e '
    my $server = IO::Socket::INET->new(LocalAddr => "0.0.0.0", LocalPort => 53, Proto => "udp") or die $!;
    while (defined $server->recv(my $query, 1500)) {
        my $question = substr($query, 12, index($query, "\0", 12) + 5 - 12);
        my $count = unpack("n", substr($question, -4, 2)) == 1 ? 1 : 0;
        my $answer = $count ? pack("n3NnC4", 0xc00c, 1, 1, 60, 4, 9, 9, 9, 9) : "";
        $server->send(substr($query, 0, 2) . pack("n5", 0x8180, 1, $count, 0, 0) . $question . $answer) }' &
resolving=$!
resolver=$(mktemp)
trap 'kill $resolving $answering $world; rm $resolver' EXIT
chmod 644 $resolver
echo nameserver 9.9.9.9 > $resolver
mount --bind $resolver "$(readlink -f /etc/resolv.conf)"
"$@"
"#;

fn missing_requirement() -> Option<&'static str> {
    let exists = |path: &str| Path::new(path).exists();
    let installed = |name: &str| {
        ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter().any(|folder| exists(&format!("{folder}/{name}")))
    };
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0);
    let namespaces = || Command::new("unshare").args(["--net", "--mount", "--", "true"]).status();
    let programs = ["bwrap", "slirp4netns", "ip", "unshare", "nsenter", "perl", "bash", "getent"];
    let missing = programs.into_iter().find(|name| !installed(name));
    let missing = missing.or_else(|| ["/dev/net/tun", "/etc/resolv.conf"].into_iter().find(|path| !exists(path)));
    let missing = missing.or_else(|| (!root).then_some("root"));
    missing.or_else(|| (!namespaces().is_ok_and(|status| status.success())).then_some("network namespaces"))
}

#[test]
fn a_job_reaches_public_addresses_and_neither_this_machine_nor_private_networks() {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return runtime.block_on(try_addresses());
    }
    if let Some(missing) = missing_requirement() {
        eprintln!("skipped: this needs {missing}");
        return;
    }
    let test = std::env::current_exe().expect("a path");
    let name = "network::a_job_reaches_public_addresses_and_neither_this_machine_nor_private_networks";
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--", "sh", "-c", SETUP_SCRIPT, "sh"])
        .arg(test)
        .args(["--exact", name, "--nocapture"])
        .env(IN_NAMESPACE, "1");
    let output = command.output().expect("started");
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}

async fn try_addresses() {
    let own = TcpListener::bind("0.0.0.0:0").await.expect("a port");
    let own_port = own.local_addr().expect("an address").port();
    tokio::spawn(async move { while own.accept().await.is_ok() {} });
    let fixture = RunnerFixture::start_with(|options| {
        options.isolation = Isolation::Bubblewrap;
        options.network = Network::Public;
    })
    .await;
    let server_port: u16 = fixture.server.url.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let forbidden = [
        ("127.0.0.1", server_port),
        ("127.0.0.1", own_port),
        ("9.9.9.1", own_port),
        ("192.168.77.1", own_port),
        ("10.9.9.9", 7777),
    ];
    // All of them accept connections outside of the job, so a failure inside is due to the rules.
    for address in forbidden.into_iter().chain([("9.9.9.9", 7777)]) {
        let connected = tokio::time::timeout(Duration::from_secs(60), async {
            while TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        connected.await.unwrap_or_else(|_| panic!("{address:?} does not answer at all"));
    }
    let connect =
        |(host, port): (&str, u16)| format!("timeout 20 bash -c '(exec 3<>/dev/tcp/{host}/{port}) 2>/dev/null'");
    let mut script = vec!["timeout 60 bash -c 'exec 3<>/dev/tcp/9.9.9.9/7777; cat <&3'".to_owned(), "cat a".to_owned()];
    // In the job's own network, the gateway and the resolver stand for this machine.
    let aliases = [("10.0.2.2", server_port), ("10.0.2.2", own_port), ("10.0.2.3", own_port), ("0.0.0.0", own_port)];
    script.extend(forbidden.into_iter().chain(aliases).map(|address| must_fail(&connect(address))));
    script.push("cat /etc/resolv.conf".to_owned());
    script.push("test \"$(getent ahostsv4 world.test | head -n 1 | cut -d ' ' -f 1)\" = 9.9.9.9".to_owned());
    script.push(must_fail("ip rule del pref 200 || ip route add default dev lo"));
    script.push(must_fail("ls /run/systemd/resolve"));
    let sha = fixture.server.repository("rocket", &[("a", "a\n")]);
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    let reported = fixture.server.run_to_end(fixture.server.job(1, "rocket", &sha, &script)).await;
    assert_eq!(reported.state, "success", "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\nthe world answers\n"), "{}", reported.plain_trace());
    assert!(reported.plain_trace().contains("\nnameserver 10.0.2.3\n"), "{}", reported.plain_trace());
    fixture.stop().await;
}

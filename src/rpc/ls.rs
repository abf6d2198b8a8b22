//! `plimsoll rpc ls`: the target as a tree, in the form of nvmetcli's `ls`.

use std::fmt::Write;

use measure::figures;
use serde_json::Value;

/// Columns of a line: the dots between a name and what is known of it fill it.
const COLUMNS: usize = 80;

/// A line of the tree, and the lines below.
#[derive(Debug)]
struct Node {
    name: String,
    about: String,
    below: Vec<Node>,
}

impl Node {
    fn new(name: impl Into<String>, about: impl Into<String>) -> Node {
        Node { name: name.into(), about: about.into(), below: Vec::new() }
    }

    /// A line above others, whose number it tells.
    fn above(name: &str, below: Vec<Node>) -> Node {
        Node { name: name.into(), about: below.len().to_string(), below }
    }

    fn draw(&self, page: &mut String, indent: &str, below: &str) {
        let start = format!("{indent}o- {} ", self.name);
        let end = format!(" [{}]", self.about);
        let dots = COLUMNS.saturating_sub(start.chars().count() + end.chars().count()).max(3);
        let _ = writeln!(page, "{start}{}{end}", ".".repeat(dots));
        for (number, node) in self.below.iter().enumerate() {
            let is_last = number + 1 == self.below.len();
            let next = if is_last { format!("{below}  ") } else { format!("{below}| ") };
            node.draw(page, below, &next);
        }
    }
}

/// The target that answers these calls.
///
/// # Errors
/// Those of the calls.
pub fn tree(call: impl Fn(&str) -> anyhow::Result<Value>) -> anyhow::Result<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let subsystems = list(&call("nvmf_get_subsystems")?);
    let devices = list(&call("bdev_get_bdevs")?);
    let transports = list(&call("nvmf_get_transports")?);
    // Older targets of SPDK do not have these.
    let connections = call("nvmf_get_stats").unwrap_or(Value::Null);
    let root = Node {
        name: "/".into(),
        about: queues(&connections),
        below: vec![
            Node::above("devices", devices.iter().map(device).collect()),
            Node::above("transports", transports.iter().map(transport).collect()),
            Node::above("ports", ports(&subsystems)),
            Node::above(
                "subsystems",
                subsystems.iter().filter(|it| it["subtype"] != "Discovery").map(subsystem).collect(),
            ),
        ],
    };
    let mut page = String::new();
    root.draw(&mut page, "", "  ");
    Ok(page)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The queues of all reactors, in words.
fn queues(stats: &Value) -> String {
    let sum = |name: &str| -> u64 {
        stats["poll_groups"].as_array().into_iter().flatten().filter_map(|group| group[name].as_u64()).sum()
    };
    format!("{} admin queues, {} I/O queues", sum("current_admin_qpairs"), sum("current_io_qpairs"))
}

fn device(device: &Value) -> Node {
    let (block, blocks) = (device["block_size"].as_u64().unwrap_or(0), device["num_blocks"].as_u64().unwrap_or(0));
    let size = figures::bytes(blocks as f64 * block as f64);
    let mut about = format!("{size}, blocks of {block}, {}", text(&device["product_name"]));
    let specific = device["driver_specific"].as_object().into_iter().flatten();
    if let Some(file) = specific.filter_map(|(_, driver)| driver["filename"].as_str()).next() {
        let _ = write!(about, ", {file}");
    }
    Node::new(text(&device["name"]), about)
}

fn transport(transport: &Value) -> Node {
    let number = |name: &str| transport[name].as_u64().unwrap_or(0);
    let about = format!(
        "queue depth {}, {} queues a controller, I/O of {}",
        number("max_queue_depth"),
        number("max_io_qpairs_per_ctrlr"),
        figures::bytes(number("max_io_size") as f64)
    );
    Node::new(text(&transport["trtype"]), about)
}

/// `127.0.0.1:4420`, `[::1]:4420`.
fn address(listener: &Value) -> String {
    let (ip, port) = (text(&listener["traddr"]), text(&listener["trsvcid"]));
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// The addresses, each with the subsystems that listen on it.
fn ports(subsystems: &[Value]) -> Vec<Node> {
    let mut ports: Vec<Node> = Vec::new();
    for subsystem in subsystems {
        for listener in subsystem["listen_addresses"].as_array().into_iter().flatten() {
            let (name, about) = (address(listener), text(&listener["trtype"]).to_lowercase());
            let there = ports.iter().position(|port| port.name == name && port.about == about);
            let at = there.unwrap_or_else(|| {
                ports.push(Node::new(name, about));
                ports.len() - 1
            });
            let about = if subsystem["subtype"] == "Discovery" { "discovery" } else { "subsystem" };
            ports[at].below.push(Node::new(text(&subsystem["nqn"]), about));
        }
    }
    ports
}

fn subsystem(subsystem: &Value) -> Node {
    let of = |name: &str| subsystem[name].as_array().cloned().unwrap_or_default();
    let any = if subsystem["allow_any_host"] == true { "any host" } else { "listed hosts" };
    let mut about = format!("serial={}, {any}", text(&subsystem["serial_number"]));
    if subsystem["ana_reporting"] == true {
        about += ", ANA";
    }
    let host = |host: &Value| {
        let keys: Vec<String> = ["dhchap_key", "dhchap_ctrlr_key", "psk"]
            .into_iter()
            .filter_map(|key| Some(format!("{key}={}", host[key].as_str()?)))
            .collect();
        Node::new(text(&host["nqn"]), if keys.is_empty() { "no key".into() } else { keys.join(", ") })
    };
    let namespace = |namespace: &Value| {
        let mut about = format!("{}, uuid={}", text(&namespace["bdev_name"]), text(&namespace["uuid"]));
        if let Some(group) = namespace["anagrpid"].as_u64() {
            let _ = write!(about, ", grpid={group}");
        }
        if namespace["no_auto_visible"] == true {
            let hosts: Vec<&str> =
                namespace["hosts"].as_array().into_iter().flatten().map(|host| text(&host["nqn"])).collect();
            let _ = write!(about, ", for {}", if hosts.is_empty() { "no host".into() } else { hosts.join(", ") });
        }
        Node::new(namespace["nsid"].to_string(), about)
    };
    let mut node = Node::new(text(&subsystem["nqn"]), about);
    node.below = vec![
        Node::above("allowed_hosts", of("hosts").iter().map(host).collect()),
        Node::above("namespaces", of("namespaces").iter().map(namespace).collect()),
    ];
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_target_is_a_tree() {
        let answers = |method: &str| {
            Ok(match method {
                "nvmf_get_subsystems" => json!([
                    { "nqn": "nqn.2014-08.org.nvmexpress.discovery", "subtype": "Discovery", "listen_addresses": [] },
                    { "nqn": "nqn.2016-06.io.spdk:cnode1", "subtype": "NVMe", "allow_any_host": false,
                      "serial_number": "SPDK1", "ana_reporting": true,
                      "listen_addresses": [{ "trtype": "TCP", "traddr": "::1", "trsvcid": "4420" }],
                      "hosts": [{ "nqn": "nqn.host", "dhchap_key": "k" }],
                      "namespaces": [
                          { "nsid": 1, "bdev_name": "Disk0", "uuid": "u1", "anagrpid": 1 },
                          { "nsid": 2, "bdev_name": "Null0", "uuid": "u2", "no_auto_visible": true, "hosts": [] }
                      ] }
                ]),
                "bdev_get_bdevs" => json!([
                    { "name": "Disk0", "block_size": 512, "num_blocks": 2097152, "product_name": "URING bdev",
                      "driver_specific": { "uring": { "filename": "/srv/disk.img" } } },
                    { "name": "Null0", "block_size": 4096, "num_blocks": 1024, "product_name": "Null disk" }
                ]),
                "nvmf_get_transports" => json!([
                    { "trtype": "TCP", "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 64, "max_io_size": 131072 }
                ]),
                _ => json!({ "poll_groups": [{ "current_admin_qpairs": 1, "current_io_qpairs": 4 }] }),
            })
        };
        let tree = tree(answers).expect("a tree");
        let expected = "\
o- / ......................................... [1 admin queues, 4 I/O queues]
  o- devices ............................................................. [2]
  | o- Disk0 ................. [1 GiB, blocks of 512, URING bdev, /srv/disk.img]
  | o- Null0 ............................... [4 MiB, blocks of 4096, Null disk]
  o- transports .......................................................... [1]
  | o- TCP ............ [queue depth 128, 64 queues a controller, I/O of 128 KiB]
  o- ports ............................................................... [1]
  | o- [::1]:4420 ...................................................... [tcp]
  |   o- nqn.2016-06.io.spdk:cnode1 .............................. [subsystem]
  o- subsystems .......................................................... [1]
    o- nqn.2016-06.io.spdk:cnode1 ........... [serial=SPDK1, listed hosts, ANA]
      o- allowed_hosts ................................................... [1]
      | o- nqn.host ........................................... [dhchap_key=k]
      o- namespaces ...................................................... [2]
        o- 1 ................................ [Disk0, uuid=u1, grpid=1]
        o- 2 ............................. [Null0, uuid=u2, for no host]
";
        let words = |text: &str| text.replace(['.'], "").split_whitespace().map(str::to_string).collect::<Vec<_>>();
        assert_eq!(words(&tree), words(expected), "{tree}");
        assert!(tree.lines().all(|line| line.chars().count() >= COLUMNS), "{tree}");
    }
}

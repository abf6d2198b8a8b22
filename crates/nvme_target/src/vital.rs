//! Threads without which the target cannot go on: a panic in one of them ends the process.
//!
//! A reactor owns its connections and the ops inside devices: nobody else can answer its hosts. A target that went on
//! without it would leave them waiting. When the process ends, hosts see their connections close, and connect again as
//! soon as the target runs again.

use std::io::Write;

/// Ends the process if the thread that holds the value panics.
pub(super) struct Vital(pub String);

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Rust has printed the message and the place of the panic.
            let _ = writeln!(
                std::io::stderr(),
                "plimsoll: {} has panicked, and the target cannot answer its hosts any more: it ends. This is a defect: \
                 please report it with the lines above, and start the target again",
                self.0
            );
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::Vital;

    #[test]
    fn a_panic_of_a_vital_thread_ends_the_process_and_is_said() {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["vital::tests::inside_a_process_that_panics", "--exact", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(6), "SIGABRT: {said}");
        assert!(said.contains("out of luck") && said.contains("plimsoll: reactor 3 has panicked"), "{said}");
    }

    #[test]
    #[ignore = "it ends its process: a_panic_of_a_vital_thread_ends_the_process_and_is_said runs it in one of its own"]
    fn inside_a_process_that_panics() {
        let vital = || {
            let _vital = Vital("reactor 3".into());
            panic!("out of luck");
        };
        let _ = std::thread::spawn(vital).join();
        println!("the process goes on");
    }

    #[test]
    fn a_thread_that_ends_well_ends_nothing_else() {
        std::thread::spawn(|| drop(Vital("reactor 0".into()))).join().unwrap();
    }
}

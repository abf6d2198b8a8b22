//! The part of [`Engine`](super::Engine) that an engine around another one passes on.

/// Passes on to the engine in the field `$inner` all calls but those that open and close files and carry out requests.
macro_rules! forward_the_rest {
    ($inner:ident) => {
        fn begin(&mut self, is_stopped: &dyn Fn() -> bool) -> std::io::Result<()> {
            self.$inner.begin(is_stopped)
        }

        fn abandon(&mut self, patience: std::time::Duration) {
            self.$inner.abandon(patience);
        }

        fn disturbances(&self) -> measure::schema::Disturbances {
            self.$inner.disturbances()
        }

        fn failure(&mut self) -> Option<std::io::Error> {
            self.$inner.failure()
        }

        fn reason(&self, errno: i32) -> Option<String> {
            self.$inner.reason(errno)
        }

        fn lost_messages(&self) -> u64 {
            self.$inner.lost_messages()
        }

        fn stray_bytes(&self) -> u64 {
            self.$inner.stray_bytes()
        }

        fn storage(&mut self) -> Option<&mut dyn $crate::engine::Storage> {
            self.$inner.storage()
        }
    };
}

//! Admission: windows, fair queues and tuning; and the simulator that runs them at any scale. Pure: time is passed in.
#![forbid(unsafe_code)]

//! The third floor: the choice of a lane for one request, what happens when the request has ended, and the record of
//! the program's requests.

pub mod split;
pub mod spread;
pub mod trace;

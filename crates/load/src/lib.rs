//! Engines, and the loop that drives them.

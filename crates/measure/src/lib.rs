//! Units, histograms, statistics, the result schema, the load line and the verdicts.
#![forbid(unsafe_code)]

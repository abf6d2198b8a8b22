//! The latencies that a job keeps, and the names of its logs.

use super::Draft;

impl Draft {
    pub(super) fn reporting(&mut self) {
        let name = self.job.name.clone();
        let reporting = &mut self.job.reporting;
        reporting.lat_percentiles &= !reporting.disable_lat;
        reporting.clat_percentiles &= !reporting.disable_clat;
        reporting.slat_percentiles &= !reporting.disable_slat;
        let logs = &mut reporting.logs;
        for prefix in [&mut logs.bw, &mut logs.iops, &mut logs.lat, &mut logs.histogram].into_iter().flatten() {
            if prefix.is_empty() {
                prefix.clone_from(&name);
            }
        }
    }
}

//! The load line of a sweep, beside what the traffic shows.

use std::path::Path;

use anyhow::{Context, bail};
use measure::figures;
use measure::schema::{Answer, Curve, Document, Estimate};
use observe::{Host, Kind, Target, Wanted};

use crate::output;

/// The swept load line of one target.
pub struct Against {
    target: Target,
    /// The depth of the load line over all clones; at least this where the sweep gave bounds.
    pub low: f64,
    /// The depth of the load line over all clones; at most this where the sweep gave bounds. Traffic is judged by it.
    pub line: f64,
    /// The plateau in requests per second.
    pub plateau_iops: Estimate,
    /// Target, block size and pattern of the sweep, for people.
    pub workload: String,
}

impl Against {
    /// Reads a sweep's result. Its target has to be among `wanted`; a result from elsewhere (a path that does not lead
    /// to a disk here) needs exactly one target.
    ///
    /// # Errors
    /// A file that is not a sweep over depths with a load line; a sweep of something that is not watched.
    pub fn read(path: &Path, host: &Host, wanted: &Wanted) -> anyhow::Result<Against> {
        let name = path.display();
        let Document::Sweep(sweep) = output::read(path)? else {
            bail!("--against {name}: not the result of a sweep (plimsoll sweep writes one)");
        };
        if sweep.axis != "iodepth" {
            bail!("--against {name}: a sweep over {}, not over iodepth: it has no load line", sweep.axis);
        }
        let named = |curve: &Curve| {
            let line = curve.line.as_ref()?;
            let (low, high) = match line.answer() {
                Answer::At(line) => (line.mean, line.mean),
                Answer::Between(low, high) => (low, high),
                Answer::Beyond | Answer::Unnamed(_) => return None,
            };
            let facts = curve.points.first().map(|point| point.job.facts.clone()).unwrap_or_default();
            let clones = f64::from(facts.numjobs.max(1));
            let block = facts.block_bytes.read.1.max(facts.block_bytes.write.1);
            let workload = format!("{} {} {}", curve.label, facts.rw, figures::bytes(block as f64));
            Some(((low * clones, high * clones), line.plateau()?, workload))
        };
        let best = sweep.curves.iter().filter_map(named).max_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
        let ((low, line), plateau_iops, workload) =
            best.with_context(|| format!("--against {name}: the sweep names no load line"))?;
        let swept = host.resolve(&sweep.target).ok();
        let is_here = swept.is_some();
        let target = match (wanted, swept) {
            (Wanted::All, Some(swept)) => swept,
            (Wanted::These(these), Some(swept)) if these.contains(&swept) => swept,
            // The user's word that the two are one: a device that another host, or another initiator, swept.
            (Wanted::These(these), None) if these.len() == 1 && matches!(these[0].kind, Kind::Disk | Kind::Nfs) => {
                these[0].clone()
            }
            (_, _) => bail!(
                "--against {name}: it is of {}, which is not watched here: name the one device or mount to compare",
                sweep.target
            ),
        };
        let workload = if is_here { workload } else { format!("{workload} on {}", sweep.target) };
        Ok(Against { target, low, line, plateau_iops, workload })
    }

    /// True if the sweep is of this target.
    pub fn is_of(&self, target: &Target) -> bool {
        self.target == *target
    }
}

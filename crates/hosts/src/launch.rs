//! This process's place among those that mpirun, srun or [`crate::ssh`] has started, read from the environment.

use std::time::Duration;

/// The place of this process among those that the launcher has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The rank of this process, from 0.
    pub rank: u32,
    /// The number of ranks, at least 2.
    pub ranks: u32,
}

/// Pairs of variables, rank and number of ranks: an agent behind ssh, Open MPI's mpirun, srun, MPICH's and Intel's
/// hydra.
///
/// Slurm's variables are those of a step: a batch script that runs the program itself has none of them.
const VARIABLES: [(&str, &str); 4] = [
    ("PLIMSOLL_RANK", "PLIMSOLL_RANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
];

/// This process's place among many; None when it is alone. `get` reads a variable of the environment.
pub fn launched(get: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| get(name)?.parse::<u32>().ok();
    VARIABLES.iter().find_map(|(rank, ranks)| {
        let (rank, ranks) = (number(rank)?, number(ranks)?);
        (ranks > 1).then_some(Launched { rank, ranks })
    })
}

/// True if mpirun has bound this process to some processors and nobody asked for that: Open MPI 4 binds each process to
/// one core when there are two of them, else to a socket (mpirun(1)). A rank has threads and clones of its own, which
/// would all share that core. `get` reads a variable of the environment.
pub fn bound_unasked(get: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| get(name).is_some();
    set("OMPI_MCA_orte_bound_at_launch") && !set("OMPI_MCA_hwloc_base_binding_policy")
}

/// The time that the launcher gives its processes between SIGTERM and SIGKILL: Open MPI's parameter, or its default of
/// a second. `get` reads a variable of the environment.
pub fn grace(get: impl Fn(&str) -> Option<String>) -> Duration {
    let seconds = get("OMPI_MCA_odls_base_sigkill_timeout").and_then(|text| text.parse::<u32>().ok());
    Duration::from_secs(seconds.unwrap_or(1).max(1).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_variables() {
        let told = |variables: &'static [(&str, &str)]| {
            launched(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(told(&[]), None);
        let mpirun = &[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")];
        assert_eq!(told(mpirun), Some(Launched { rank: 3, ranks: 8 }));
        assert_eq!(told(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), None, "alone");
        let srun = &[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_NTASKS", "2")];
        assert_eq!(told(srun), Some(Launched { rank: 1, ranks: 2 }));
        assert_eq!(told(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")]), None, "a batch script itself");
    }

    #[test]
    fn a_binding_that_was_asked_for_is_told_from_the_default() {
        let told = |names: &'static [&str]| bound_unasked(|name| names.contains(&name).then(|| "1".to_string()));
        assert!(told(&["OMPI_MCA_orte_bound_at_launch"]));
        assert!(!told(&["OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_hwloc_base_binding_policy"]));
        assert!(!told(&["OMPI_MCA_hwloc_base_binding_policy"]) && !told(&[]));
    }

    #[test]
    fn the_time_between_the_signals_is_a_second_or_what_mpirun_was_told() {
        for (value, seconds) in [(None, 1), (Some("5"), 5), (Some("0"), 1), (Some("soon"), 1)] {
            let get = |name: &str| value.filter(|_| name == "OMPI_MCA_odls_base_sigkill_timeout").map(str::to_owned);
            assert_eq!(grace(get), Duration::from_secs(seconds), "{value:?}");
        }
    }
}

use super::*;

/// Ranks whose messages take some time, on separate clocks; time is what the test says it is.
struct World {
    members: Vec<Option<Member>>,
    now_ns: u64,
    /// (when it arrives, a number that keeps the order, from, to, message, bytes)
    under_way: std::collections::BTreeMap<(u64, u64), (u32, Outgoing)>,
    sent: u64,
    ahead_ns: fn(u32) -> u64,
    /// These are cut off from the others, not from each other.
    cut_off: BTreeSet<u32>,
    /// Nanoseconds between looks of the ranks at their clocks.
    step_ns: u64,
    /// The number of messages that each rank has sent, and the number that it has received.
    spoken: Vec<(u64, u64)>,
}

const STEP_NS: u64 = 500_000;

impl World {
    fn of(size: u32) -> World {
        World::with_clocks(size, |_| 0)
    }

    fn with_clocks(size: u32, ahead_ns: fn(u32) -> u64) -> World {
        let now_ns = 1_000_000_000;
        let member = |rank| Some(Member::new(rank, size, u64::from(rank) + 1, now_ns + ahead_ns(rank)));
        let members = (0..size).map(member).collect();
        World {
            members,
            now_ns,
            under_way: Default::default(),
            sent: 0,
            ahead_ns,
            cut_off: BTreeSet::new(),
            step_ns: STEP_NS,
            spoken: vec![(0, 0); size as usize],
        }
    }

    fn each(&mut self, mut act: impl FnMut(u32, &mut Member, u64)) {
        for (rank, member) in self.members.iter_mut().enumerate() {
            let clock_ns = self.now_ns + (self.ahead_ns)(rank as u32);
            member.iter_mut().for_each(|member| act(rank as u32, member, clock_ns));
        }
        self.post();
    }

    fn post(&mut self) {
        (0..self.members.len()).for_each(|from| self.post_of(from));
    }

    /// Sends what one rank has to say.
    fn post_of(&mut self, from: usize) {
        if let Some(member) = &mut self.members[from] {
            let cut_off = |rank: u32| self.cut_off.contains(&rank);
            let there = |outgoing: &Outgoing| cut_off(outgoing.0) == cut_off(from as u32);
            for outgoing in member.take_outgoing().into_iter().filter(there) {
                // Ways are of different lengths, each way always the same: order is kept.
                let way_ns = 30_000 + (from as u64 * 7919 + u64::from(outgoing.0) * 104_729) % 90_000;
                self.sent += 1;
                self.spoken[from].0 += 1;
                self.under_way.insert((self.now_ns + way_ns, self.sent), (from as u32, outgoing));
            }
        }
    }

    fn step(&mut self) {
        let end_ns = self.now_ns + self.step_ns;
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= end_ns) {
            let (at_ns, _) = *entry.key();
            let (from, (to, message, bytes)) = entry.remove();
            self.now_ns = self.now_ns.max(at_ns);
            let clock_ns = self.now_ns + (self.ahead_ns)(to);
            if let Some(member) = &mut self.members[to as usize] {
                self.spoken[to as usize].1 += 1;
                member.hear(from, message, &bytes, clock_ns);
                member.tick(clock_ns);
            }
            self.post_of(to as usize);
        }
        self.now_ns = end_ns;
        self.each(|_, member, now_ns| member.tick(now_ns));
    }

    /// Steps until it is so; the nanoseconds that it took.
    fn until(&mut self, so: impl Fn(&World) -> bool) -> u64 {
        let began_ns = self.now_ns;
        while !so(self) {
            self.step();
            assert!(self.now_ns - began_ns < 60_000_000_000, "a minute has passed");
        }
        self.now_ns - began_ns
    }

    fn all(&self, so: impl Fn(&Member) -> bool) -> bool {
        self.members.iter().flatten().all(so)
    }
}

fn concatenate(parts: Vec<Vec<u8>>) -> Vec<u8> {
    let mut all = parts.concat();
    all.sort_unstable();
    all
}

fn hand_over_ranks(world: &mut World, round: Round) {
    world.each(|rank, member, now_ns| {
        member.hand_over(round, vec![rank as u8], Box::new(concatenate), now_ns);
    });
}

#[test]
fn a_gate_opens_for_all_at_one_moment_once_the_last_has_come() {
    for size in [1, 2, 3, 7, 64] {
        let mut world = World::of(size);
        world.each(|rank, member, now_ns| {
            if rank + 1 < size {
                member.come_to(5, now_ns)
            }
        });
        (0..100).for_each(|_| world.step());
        assert!(size == 1 || world.all(|member| member.opened(5).is_none()), "{size}: one is still to come");
        world.each(|rank, member, now_ns| {
            if rank + 1 == size {
                member.come_to(5, now_ns)
            }
        });
        world.until(|world| world.all(|member| member.opened(5).is_some()));
        let at: BTreeSet<u64> = world.members.iter().flatten().filter_map(|member| member.opened(5)).collect();
        assert_eq!(at.len(), 1, "{size} ranks agree on the moment");
        assert!(*at.first().unwrap() > world.now_ns, "the news is there before the moment");
    }
}

/// Copies of one virtual machine say that they are one machine: round trips show that their clocks are not one.
#[test]
fn ranks_that_wrongly_claim_one_clock_are_compared_all_the_same() {
    let ahead = |rank| if rank == 2 { 1_001_000_000_000 } else { 0 };
    let mut world = World::with_clocks(5, ahead);
    world.members.iter_mut().flatten().for_each(|member| member.machine = 7);
    world.each(|_, member, now_ns| member.compare_clocks(now_ns));
    world.until(|world| world.all(|member| member.onward().is_some()));
    for member in world.members.iter().flatten() {
        let offset = member.onward().unwrap();
        assert!(offset.ahead_ns.abs_diff(-(ahead(member.me) as i64)) <= offset.bound_ns, "{}: {offset:?}", member.me);
        assert!(offset.bound_ns < 1_000_000, "{}: {offset:?}", member.me);
    }
    for neighbour in [0, 1] {
        let member = world.members[neighbour].as_ref().unwrap();
        assert_eq!(member.onward(), Some(Offset::default()), "{neighbour} shares the clock of the root");
    }
}

#[test]
fn who_has_left_for_the_end_holds_up_no_gate() {
    let mut world = World::of(5);
    world.each(|rank, member, now_ns| match rank {
        3 => member.hand_over(FINAL, vec![3], Box::new(concatenate), now_ns),
        _ => member.come_to(9, now_ns),
    });
    let others_opened = |world: &World| {
        world.members.iter().flatten().filter(|member| member.me != 3).all(|member| member.opened(9).is_some())
    };
    world.until(others_opened);
}

#[test]
fn an_exchange_merges_what_all_hand_over_and_its_answer_reaches_all() {
    for size in [1, 2, 6, 33] {
        let mut world = World::of(size);
        hand_over_ranks(&mut world, 10);
        let mut whole = None;
        while whole.is_none() {
            world.step();
            whole = world.members[0].as_mut().unwrap().take_whole(10);
        }
        assert_eq!(whole.unwrap(), (0..size as u8).collect::<Vec<_>>());
        world.members[0].as_mut().unwrap().answer(10, b"well".to_vec());
        world.until(|world| world.all(|member| member.answers.get(&10).is_some_and(|answer| answer == b"well")));
    }
}

#[test]
fn clocks_are_compared_along_the_tree_within_the_bound() {
    let ahead = |rank: u32| u64::from(rank) * 1_234_567_891 % 40_000_000_000;
    let mut world = World::with_clocks(13, ahead);
    world.each(|_, member, now_ns| member.compare_clocks(now_ns));
    world.until(|world| world.all(|member| member.onward().is_some()));
    for member in world.members.iter().flatten() {
        let (offset, truth) = (member.onward().unwrap(), -(ahead(member.me) as i64));
        assert!(offset.ahead_ns.abs_diff(truth) <= offset.bound_ns + 4, "rank {}: {offset:?}, {truth}", member.me);
        assert!(offset.bound_ns < 1_000_000, "rank {}: {offset:?}", member.me);
    }
}

#[test]
fn ranks_that_share_a_clock_do_not_ask() {
    let mut world = World::of(4);
    world.members.iter_mut().flatten().for_each(|member| member.machine = 1);
    world.each(|_, member, now_ns| member.compare_clocks(now_ns));
    world.until(|world| world.all(|member| member.onward() == Some(Offset::default())));
}

#[test]
fn trouble_stops_everyone_and_the_end_still_has_all_parts() {
    let mut world = World::of(9);
    world.each(|rank, member, now_ns| {
        if rank == 6 {
            member.report("has no space".into(), now_ns)
        }
    });
    let took_ns = world.until(|world| world.all(Member::is_stopped));
    assert!(took_ns < 1_000_000_000);
    assert!(world.all(|member| member.troubles()[0].what == "has no space" && member.troubles()[0].rank == 6));
    hand_over_ranks(&mut world, FINAL);
    world.until(|world| world.members[0].as_ref().unwrap().whole.is_some());
    let root = world.members[0].as_mut().unwrap();
    assert_eq!(root.take_whole(FINAL).unwrap(), (0..9).collect::<Vec<u8>>());
}

/// Any rank may be lost, whatever the others are doing: they stop within five seconds, and their parts are merged.
#[test]
fn a_lost_rank_is_named_and_the_tree_closes_over_the_gap() {
    for size in [2, 3, 8, 21] {
        for lost in 0..size {
            for before in [true, false] {
                let mut world = World::of(size);
                (0..1000).for_each(|_| world.step());
                if before {
                    hand_over_ranks(&mut world, FINAL);
                    (0..lost % 3).for_each(|_| world.step());
                }
                world.members[lost as usize] = None;
                let case = format!("{lost} of {size}, {before}");
                if !before {
                    let took_ns = world.until(|world| world.all(Member::is_stopped));
                    assert!(took_ns < 5_000_000_000, "{case}: {took_ns}");
                    hand_over_ranks(&mut world, FINAL);
                }
                let root = u32::from(lost == 0) as usize;
                world.until(|world| world.members[root].as_ref().unwrap().whole.is_some());
                let member = world.members[root].as_mut().unwrap();
                let whole = member.take_whole(FINAL).unwrap();
                let left: Vec<u8> = (0..size as u8).filter(|&rank| u32::from(rank) != lost).collect();
                // Handed over before it was lost, its part may be there.
                assert!(whole == left || (before && whole.len() == size as usize), "{case}: {whole:?}");
                if whole == left {
                    assert!(member.is_root() && member.troubles().iter().any(|t| t.rank == lost && t.lost), "{case}");
                }
            }
        }
    }
}

/// A cable: both sides live, and neither hears the other. Both stop; which of them reports is agreed beforehand.
#[test]
fn of_a_network_that_comes_apart_both_sides_stop_and_the_one_that_counts_reports() {
    let every_fourth = |from: u32, size: u32| (from..size).step_by(4).collect::<Vec<u32>>();
    let cases: [(u32, Vec<u32>); 9] = [
        (2, vec![1]),
        (4, vec![0]),
        (4, vec![1]),
        (4, vec![2]),
        (8, vec![0, 1]),
        (16, every_fourth(2, 16)),
        (21, (5..12).collect()),
        (33, (0..9).collect()),
        (64, every_fourth(0, 64)),
    ];
    for (size, cut_off) in cases {
        let case = format!("{cut_off:?} of {size}");
        let mut world = World::of(size);
        (0..1000).for_each(|_| world.step());
        world.cut_off = cut_off.iter().copied().collect();
        let stopped_ns = world.until(|world| world.all(Member::is_stopped));
        assert!(stopped_ns < 5_000_000_000, "{case}: {stopped_ns}");
        hand_over_ranks(&mut world, FINAL);
        let others: Vec<u32> = (0..size).filter(|rank| !cut_off.contains(rank)).collect();
        for side in [&cut_off, &others] {
            let all: Vec<u8> = side.iter().map(|&rank| rank as u8).collect();
            let root = side[0] as usize;
            let whole = |world: &World| {
                world.members[root].as_ref().unwrap().whole.as_ref().is_some_and(|(_, whole)| *whole == all)
            };
            let took_ns = stopped_ns + world.until(whole);
            assert!(took_ns < 8_000_000_000, "{case}: {took_ns}");
            let root = world.members[root].as_ref().unwrap();
            assert_eq!(root.counts(), side[0] == 0 || 2 * side.len() >= size as usize, "{case}");
            let lost: BTreeSet<u32> = root.troubles().iter().filter(|t| t.lost).map(|t| t.rank).collect();
            assert_eq!(lost, (0..size).filter(|rank| !side.contains(rank)).collect(), "{case}");
        }
    }
}

/// One host with the two ranks that everybody reports to is down.
#[test]
fn those_who_are_left_find_each_other_without_the_first_two() {
    let mut world = World::of(12);
    (0..1000).for_each(|_| world.step());
    (world.members[0], world.members[1]) = (None, None);
    let took_ns = world.until(|world| world.all(Member::is_stopped));
    assert!(took_ns < 5_500_000_000, "{took_ns}");
    hand_over_ranks(&mut world, FINAL);
    world.until(|world| world.members[2].as_ref().unwrap().whole.is_some());
    let whole = world.members[2].as_mut().unwrap().take_whole(FINAL).unwrap();
    assert_eq!(whole, (2..12).collect::<Vec<u8>>());
}

#[test]
fn two_lost_ranks_one_after_the_other() {
    let mut world = World::of(16);
    (0..1000).for_each(|_| world.step());
    world.members[8] = None;
    hand_over_ranks(&mut world, FINAL);
    (0..4000).for_each(|_| world.step());
    world.members[0] = None;
    world.until(|world| world.members[1].as_ref().unwrap().whole.is_some());
    let whole = world.members[1].as_mut().unwrap().take_whole(FINAL).unwrap();
    assert_eq!(whole, (1..16).filter(|&rank| rank != 8).collect::<Vec<u8>>());
}

/// A rank is killed; a second later mpirun tells the others to end: each has a second more, or what mpirun was told to
/// give.
#[test]
fn when_it_is_urgent_the_lowest_rank_that_lives_collects_in_time() {
    for (lost, grace_ns) in [(0, None), (1, None), (5, None), (0, Some(8_000_000_000)), (5, Some(8_000_000_000))] {
        let mut world = World::of(8);
        if let Some(grace_ns) = grace_ns {
            world.members = world.members.into_iter().map(|member| Some(member?.with_grace(grace_ns))).collect();
        }
        let grace_ns = grace_ns.unwrap_or(1_000_000_000);
        (0..1000).for_each(|_| world.step());
        world.members[lost] = None;
        (0..2000).for_each(|_| world.step());
        assert!(world.all(|member| !member.is_stopped()), "a second of silence is no loss");
        world.each(|_, member, now_ns| member.urge(now_ns));
        world.each(|rank, member, _| member.send_partial(&[rank as u8]));
        let speaker = usize::from(lost == 0);
        let began_ns = world.now_ns;
        let partials = loop {
            world.step();
            let now_ns = world.now_ns;
            let silent = (0..8)
                .filter(|&rank| rank != speaker)
                .all(|rank| world.members[rank].as_mut().is_none_or(|member| member.take_partials(now_ns).is_none()));
            assert!(silent, "only one speaks");
            if let Some(partials) = world.members[speaker].as_mut().unwrap().take_partials(now_ns) {
                break partials;
            }
        };
        // As long for the others as there is, but for the time that writing takes.
        assert!((grace_ns / 2..=grace_ns / 4 * 3).contains(&(world.now_ns - began_ns)));
        assert_eq!(partials.len(), 7);
        assert!(!partials.contains_key(&(lost as u32)));
    }
}

/// mpirun does not tell all hosts at the same time.
#[test]
fn whoever_is_told_first_tells_those_behind_a_gap() {
    let mut world = World::of(8);
    (0..1000).for_each(|_| world.step());
    world.members[4] = None;
    world.each(|rank, member, now_ns| {
        if rank == 0 {
            member.urge(now_ns)
        }
    });
    assert!(world.until(|world| world.all(Member::is_urgent)) < 100_000_000, "5, 6 and 7 hang on the lost one");
}

#[test]
fn one_rank_that_is_told_to_end_at_once_takes_the_others_with_it() {
    let mut world = World::of(6);
    world.each(|rank, member, now_ns| {
        if rank == 4 {
            member.urge(now_ns)
        }
    });
    world.until(|world| world.all(Member::is_urgent));
    world.each(|rank, member, _| member.send_partial(&[rank as u8]));
    let all_there = |world: &World| world.members[0].as_ref().unwrap().partials.len() == 6;
    assert!(world.until(all_there) < 100_000_000, "nobody is missing: nobody is waited for");
}

#[test]
fn a_rank_that_slept_does_not_blame_the_others() {
    let mut world = World::of(2);
    (0..1000).for_each(|_| world.step());
    // Rank 1 gets no processor for four seconds; the other's signs of life pile up.
    let sleeper = world.members[1].take();
    (0..4000).for_each(|_| world.step());
    world.members[1] = sleeper;
    world.each(|rank, member, now_ns| {
        if rank == 1 {
            member.tick(now_ns + 2_000_000_000)
        }
    });
    assert!(!world.members[1].as_ref().unwrap().is_stopped());
}

#[test]
fn a_statement_is_of_all_ranks_and_whoever_is_done_holds_up_none() {
    let mut world = World::of(10);
    let say = |world: &mut World, number, ranks: std::ops::Range<u32>| {
        world.each(|rank, member, _| {
            if ranks.contains(&rank) {
                member.state(number, vec![rank as u8], Box::new(concatenate));
            }
        });
        (0..20).for_each(|_| world.step());
        world.members[0].as_mut().unwrap().take_statement()
    };
    assert_eq!(say(&mut world, 1, 0..9), None, "one is still to say something");
    assert_eq!(say(&mut world, 1, 9..10), Some((0..10).collect()));
    assert_eq!(say(&mut world, LAST_STATEMENT, 4..7), None, "nothing new from the others");
    assert_eq!(say(&mut world, 2, 0..4), None);
    assert_eq!(say(&mut world, 2, 7..10), Some((0..10).collect()));
    assert_eq!(say(&mut world, LAST_STATEMENT, 0..10), None, "the end has a report of its own");
}

#[test]
fn the_moment_of_all_ranks_reaches_the_root() {
    let mut world = World::of(10);
    world.each(|rank, member, _| {
        member.set_moment(Moment { ops: [u64::from(rank), 0, 0], clones: (1, 1), ..Moment::default() });
    });
    let told = |world: &World| world.members[0].as_ref().unwrap().moment().ranks == 10;
    assert!(world.until(told) < 2_000_000_000);
    assert_eq!(world.members[0].as_ref().unwrap().moment().ops[0], 45);
}

/// The most messages that one rank has sent or heard in a part of the run, and the messages of all ranks together.
fn messages(world: &mut World, act: impl FnOnce(&mut World)) -> (u64, u64) {
    let before = (world.spoken.clone(), world.sent);
    act(world);
    let of_one = world.spoken.iter().zip(&before.0).map(|(now, then)| (now.0 - then.0) + (now.1 - then.1));
    (of_one.max().unwrap_or(0), world.sent - before.1)
}

fn sum(parts: Vec<Vec<u8>>) -> Vec<u8> {
    let word = |part: &[u8], index: usize| u64::from_le_bytes(part[8 * index..][..8].try_into().unwrap());
    let of = |index: usize| parts.iter().map(|part| word(part, index)).sum::<u64>().to_le_bytes();
    [of(0), of(1)].concat()
}

/// A whole run of 4,096 ranks on as many hosts: clocks, layout, start, merge, and the loss of a rank on which eleven
/// others hang. Nobody hears more than grows with the logarithm of the ranks, and all begin within the sum of the
/// bounds along a path of the tree: twelve steps, each known to half of its round trip.
#[test]
fn four_thousand_ranks_begin_together_merge_and_lose_one() {
    const RANKS: u32 = 4096;
    const STEPS: u64 = 12;
    /// The longest way of a message in this world.
    const WAY_NS: u64 = 120_000;
    let ahead = |rank: u32| u64::from(rank) * 1_234_567_891 % 40_000_000_000;
    let mut world = World::with_clocks(RANKS, ahead);
    world.step_ns = 5_000_000;

    // Layout: the ranks come to a gate in no order.
    let at_gate = |world: &mut World, gate: Round| {
        world.each(|_, member, now_ns| member.come_to(gate, now_ns));
        world.until(|world| world.all(|member| member.opened(gate).is_some()))
    };
    let (most, all) = messages(&mut world, |world| {
        let took_ns = at_gate(world, 1);
        assert!(took_ns < 100_000_000, "the news of a gate takes {took_ns} ns");
    });
    // For each of 13 neighbours: a signal of life, the way up in two messages, the way down in one.
    assert!(most <= 5 * (STEPS + 1) && all <= 5 * u64::from(RANKS), "layout: {most}, {all}");

    // Clocks: forty questions to the parent, and as many answers to each child.
    let (most, all) = messages(&mut world, |world| {
        world.each(|_, member, now_ns| member.compare_clocks(now_ns));
        world.until(|world| world.all(|member| member.onward().is_some()));
    });
    assert!(most <= 2 * u64::from(ROUND_TRIPS + 6) * (STEPS + 1), "clocks: {most}");
    assert!(all <= 2 * u64::from(ROUND_TRIPS + 6) * u64::from(RANKS), "clocks: {all}");

    // Start: each rank begins when its own clock says so.
    at_gate(&mut world, 2);
    let moment_ns = world.members[0].as_ref().unwrap().opened(2).unwrap();
    let mut worst_ns = 0;
    for member in world.members.iter().flatten() {
        assert_eq!(member.opened(2), Some(moment_ns));
        let onward = member.onward().unwrap();
        let begins_ns = onward.here(moment_ns) - ahead(member.me);
        let skew_ns = begins_ns.abs_diff(moment_ns - ahead(0));
        assert!(skew_ns <= onward.bound_ns + STEPS, "rank {}: {skew_ns}, {onward:?}", member.me);
        assert!(onward.bound_ns <= STEPS * WAY_NS, "rank {}: {onward:?}", member.me);
        assert!(begins_ns > world.now_ns, "rank {} hears of the start in time", member.me);
        worst_ns = worst_ns.max(skew_ns);
    }
    assert!(worst_ns <= STEPS * WAY_NS, "{worst_ns}");

    // Merge: one part of each rank, however many are below it.
    let part = |rank: u32| [u64::from(rank).to_le_bytes(), 1u64.to_le_bytes()].concat();
    let hand_over = |world: &mut World, round: Round| {
        world.each(|rank, member, now_ns| member.hand_over(round, part(rank), Box::new(sum), now_ns));
        world.until(|world| world.members[0].as_ref().unwrap().whole.is_some());
        world.members[0].as_mut().unwrap().take_whole(round).unwrap()
    };
    let ranks = u64::from(RANKS);
    let both = |sum: u64, count: u64| [sum.to_le_bytes(), count.to_le_bytes()].concat();
    let (most, all) = messages(&mut world, |world| {
        assert_eq!(hand_over(world, 10), both(ranks * (ranks - 1) / 2, ranks));
    });
    assert!(most <= 5 * (STEPS + 1) && all <= 5 * ranks, "merge: {most}, {all}");

    // Loss: half of all ranks are below the lost one or its neighbours; all stop, and nobody else is blamed.
    let lost = 2048;
    world.members[lost] = None;
    let took_ns = world.until(|world| world.all(Member::is_stopped));
    assert!(took_ns < 5_500_000_000, "{took_ns}");
    let left = both(ranks * (ranks - 1) / 2 - lost as u64, ranks - 1);
    assert_eq!(hand_over(&mut world, FINAL), left);
    let root = world.members[0].as_ref().unwrap();
    let blamed: Vec<u32> = root.troubles().iter().filter(|trouble| trouble.lost).map(|trouble| trouble.rank).collect();
    assert_eq!(blamed, [lost as u32]);
}

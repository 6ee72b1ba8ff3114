//! The course of a run: faults at their times, and samples in between.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure};
use slidegate_testbed::{Gateway, RedisServer, wait_until};

use super::footprint::Footprint;
use super::log::Log;
use super::oracle::{Faults, Reload, Span};
use super::rules;
use super::schedule::{Fault, schedule};
use super::upstream::Upstream;

/// The servers of a run, and what has been done to them.
pub struct Course {
    pub log: Log,
    pub upstream: Upstream,
    pub redis: RedisServer,
    pub gateway: Gateway,
    pub faults: Faults,
    pub samples: Vec<Footprint>,
}

const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const SAY_EVERY: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(50);
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// How long Redis is down or stopped, and the upstream down.
const REDIS_AWAY: Duration = Duration::from_secs(2);
const UPSTREAM_AWAY: Duration = Duration::from_millis(700);
/// Longer than the deadline of a call to Redis.
const LATE_CALLS: Duration = Duration::from_millis(1500);
/// The gateway probes Redis every three seconds at least, and then replays what it admitted.
const HEALS_WITHIN: Duration = Duration::from_secs(20);
/// Longer than every timeout of the gateway, and than it keeps idle connections to the upstream.
const QUIET: Duration = Duration::from_secs(60);
/// Files and connections to Redis that may be open or not.
const SPARE_FDS: f64 = 4.0;

impl Course {
    /// Makes the faults and takes samples until the time is over or the user ends it.
    pub fn run(
        &mut self,
        length: Duration,
        seed: u64,
        interrupted: &AtomicBool,
    ) -> anyhow::Result<()> {
        let began = self.log.now();
        let mut faults = schedule(length, seed).into_iter().peekable();
        let (mut sample_at, mut say_at) = (Duration::ZERO, SAY_EVERY);
        loop {
            let elapsed = self.log.now() - began;
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted after {} s", elapsed.as_secs());
            }
            ensure!(self.gateway.is_running(), "the gateway ended:\n{}", self.gateway.output());
            if elapsed >= length {
                return Ok(());
            }
            if elapsed >= sample_at {
                self.samples.push(Footprint::of(&self.gateway, elapsed));
                sample_at += SAMPLE_EVERY;
            }
            if elapsed >= say_at {
                self.say(elapsed, length);
                say_at += SAY_EVERY;
            }
            match faults.next_if(|(at, _)| elapsed >= *at) {
                Some((_, fault)) => self.make(fault)?,
                None => sleep(NAP),
            }
        }
    }

    fn say(&self, elapsed: Duration, length: Duration) {
        let Some(Footprint { rss_mb, fds, connections, .. }) = self.samples.last() else { return };
        eprintln!(
            "{:>5} of {} s: {} requests; {rss_mb:.1} MB, {fds} fds, {connections} connections; {} \
             reloads, {} faults of Redis, {} of the upstream",
            elapsed.as_secs(),
            length.as_secs(),
            self.log.len(),
            self.faults.reloads.len() - 1,
            self.faults.redis.len(),
            self.faults.upstream.len(),
        );
    }

    fn make(&mut self, fault: Fault) -> anyhow::Result<()> {
        let began = self.log.now();
        match fault {
            Fault::Reload { version } => {
                self.reload(&self.configuration(version), "ok");
                let done = self.log.now();
                self.faults.reloads.push(Reload { version, asked: began, done });
            }
            Fault::BadReload => {
                self.reload(&self.configuration(0).replace("quotas", "qoutas"), "failed");
            }
            Fault::KillRedis => {
                self.redis.kill();
                sleep(REDIS_AWAY);
                self.redis.restart();
                self.heal(began)?;
            }
            Fault::StopRedis => {
                self.redis.pause();
                sleep(REDIS_AWAY);
                self.redis.resume();
                self.heal(began)?;
            }
            Fault::KillUpstream => {
                self.upstream.kill();
                sleep(UPSTREAM_AWAY);
                wait_until("the upstream's port", || self.upstream.revive().is_ok());
                let ended = self.log.now();
                self.faults.upstream.push(Span { began, ended });
            }
        }
        Ok(())
    }

    fn configuration(&self, version: usize) -> String {
        rules::configuration(self.upstream.address(), &self.redis.url(), version)
    }

    fn reload(&self, configuration: &str, outcome: &str) {
        let reloads = || self.gateway.metric("slidegate_config_reloads_total", outcome);
        let before = reloads();
        self.gateway.reconfigure(configuration);
        self.gateway.signal("HUP");
        wait_until("the reload", || reloads() > before);
    }

    /// Waits until Redis decides for every account again.
    fn heal(&mut self, began: Duration) -> anyhow::Result<()> {
        let back = self.log.now();
        // Calls that were made before may still miss their deadline and open the breaker.
        sleep(LATE_CALLS);
        let is_healed = || {
            self.gateway.metric("slidegate_store_breaker", "closed") > 0.0
                && self.gateway.metric("slidegate_store_unmerged_accounts", "") == 0.0
        };
        while !is_healed() {
            ensure!(self.log.now() - back < HEALS_WITHIN, "Redis does not decide again");
            sleep(NAP);
        }
        self.faults.redis.push(Span { began, ended: self.log.now() });
        Ok(())
    }

    /// Waits until what clients occupied is free again, and returns what is occupied then. Fails
    /// with what is left.
    pub fn settle(&self, idle: &Footprint) -> anyhow::Result<Footprint> {
        let began = self.log.now();
        loop {
            // Idle connections to the upstream are dropped by the next request that looks for one.
            self.gateway.status("/address");
            let left = Footprint::of(&self.gateway, self.log.now());
            let Footprint { fds, connections, .. } = left;
            if fds <= idle.fds + SPARE_FDS && connections == 0.0 {
                return Ok(left);
            }
            ensure!(
                self.log.now() - began < QUIET,
                "{fds} fds and {connections} connections are left without clients; there were {} \
                 fds before. Open: {}",
                idle.fds,
                open_files(self.gateway.pid())
            );
            sleep(PAUSE_BETWEEN_LOOKS);
        }
    }
}

/// What a process has open, for a message.
fn open_files(pid: u32) -> String {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.display().to_string()).collect::<Vec<_>>().join(", ")
}

//! A store without limits.

use amalgam_core::{
    AuditDraft, LimitRecord, LimitRules, LimitSubject, Operator, RateLimits,
    store::{HoldSettlement, LimitReservation, LimitStore, PriceRecord, ProcessId, ReserveOutcome, Stored},
};

use super::{Nothing, gives};

impl LimitStore for Nothing {
    fn limits_version(&self, _: Operator) -> Stored<'_, u64> {
        gives(0)
    }

    fn limits<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: Option<&'a LimitSubject>,
        _: usize,
    ) -> Stored<'a, Vec<LimitRecord>> {
        gives(Vec::new())
    }

    fn limit<'a>(&'a self, _: Operator, _: &'a LimitSubject) -> Stored<'a, Option<LimitRecord>> {
        gives(None)
    }

    fn put_limit(
        &self,
        _: Operator,
        subject: LimitSubject,
        rules: LimitRules,
        now_ms: u64,
        _: AuditDraft,
    ) -> Stored<'_, LimitRecord> {
        gives(LimitRecord::new(subject, rules, 1, now_ms))
    }

    fn delete_limit(&self, _: Operator, _: LimitSubject, _: AuditDraft) -> Stored<'_, bool> {
        gives(false)
    }

    fn reserve(&self, _: Operator, _: LimitReservation) -> Stored<'_, ReserveOutcome> {
        gives(ReserveOutcome::Granted { held: false, rate_limits: RateLimits::default() })
    }

    fn settle_holds(&self, _: Operator, _: Vec<HoldSettlement>) -> Stored<'_, ()> {
        gives(())
    }

    fn holds(&self, _: Operator, _: ProcessId) -> Stored<'_, Vec<String>> {
        gives(Vec::new())
    }

    fn settle_dead_holds(&self, _: Operator, _: u64) -> Stored<'_, u64> {
        gives(0)
    }

    fn put_prices(&self, _: Operator, _: Vec<PriceRecord>, _: AuditDraft) -> Stored<'_, ()> {
        gives(())
    }

    fn prices<'a>(&'a self, _: Operator, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<PriceRecord>> {
        gives(Vec::new())
    }
}

//! The numbers of a ledger.

use berth_domain::{Bytes, Millicores};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The account of a device's memory, or of a machine's RAM. `held + releasing + foreign <= capacity` now, and
/// `held + foreign + promised <= capacity` once everything that is releasing is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryBalance {
    /// The amount that slots may use in all.
    #[schema(value_type = schema::Bytes)]
    pub capacity_bytes: Bytes,
    /// The amount of slots that run or may run.
    #[schema(value_type = schema::Bytes)]
    pub held_bytes: Bytes,
    /// The amount of slots that are being stopped. It is not free before it is proven free.
    #[schema(value_type = schema::Bytes)]
    pub releasing_bytes: Bytes,
    /// The amount that slots will have once releasing amounts are proven free.
    #[schema(value_type = schema::Bytes)]
    pub promised_bytes: Bytes,
    /// The amount that other programs use.
    #[schema(value_type = schema::Bytes)]
    pub foreign_bytes: Bytes,
    /// The amount that a new slot could get now.
    #[schema(value_type = schema::Bytes)]
    pub free_bytes: Bytes,
}

/// The account of a machine's CPU, with the same two inequalities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuBalance {
    /// The amount that slots may use in all.
    #[schema(value_type = schema::Millicores)]
    pub capacity_millicores: Millicores,
    /// The amount of slots that run or may run.
    #[schema(value_type = schema::Millicores)]
    pub held_millicores: Millicores,
    /// The amount of slots that are being stopped.
    #[schema(value_type = schema::Millicores)]
    pub releasing_millicores: Millicores,
    /// The amount that slots will have once releasing amounts are proven free.
    #[schema(value_type = schema::Millicores)]
    pub promised_millicores: Millicores,
    /// The amount that other programs use.
    #[schema(value_type = schema::Millicores)]
    pub foreign_millicores: Millicores,
    /// The amount that a new slot could get now.
    #[schema(value_type = schema::Millicores)]
    pub free_millicores: Millicores,
}

//! The numbers of a ledger.

use berth_domain::{Bytes, Millicores};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// The account of a device's memory, or of a machine's RAM. `held + releasing + foreign <= capacity` now, and
/// `held + foreign + promised <= capacity` once everything that is releasing is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemoryBalance {
    /// What may be used at all.
    #[schema(value_type = schema::Bytes)]
    pub capacity_bytes: Bytes,
    /// Belongs to slots that run or may run.
    #[schema(value_type = schema::Bytes)]
    pub held_bytes: Bytes,
    /// Belongs to slots that are being stopped: not free before it is proven.
    #[schema(value_type = schema::Bytes)]
    pub releasing_bytes: Bytes,
    /// Will belong to slots once what is releasing is proven free.
    #[schema(value_type = schema::Bytes)]
    pub promised_bytes: Bytes,
    /// In use by others.
    #[schema(value_type = schema::Bytes)]
    pub foreign_bytes: Bytes,
    /// What a new slot could be given now.
    #[schema(value_type = schema::Bytes)]
    pub free_bytes: Bytes,
}

/// The account of a machine's CPU, by the same two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuBalance {
    /// What may be used at all.
    #[schema(value_type = schema::Millicores)]
    pub capacity_millicores: Millicores,
    /// Belongs to slots that run or may run.
    #[schema(value_type = schema::Millicores)]
    pub held_millicores: Millicores,
    /// Belongs to slots that are being stopped.
    #[schema(value_type = schema::Millicores)]
    pub releasing_millicores: Millicores,
    /// Will belong to slots once what is releasing is proven free.
    #[schema(value_type = schema::Millicores)]
    pub promised_millicores: Millicores,
    /// In use by others.
    #[schema(value_type = schema::Millicores)]
    pub foreign_millicores: Millicores,
    /// What a new slot could be given now.
    #[schema(value_type = schema::Millicores)]
    pub free_millicores: Millicores,
}

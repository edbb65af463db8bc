//! What follows from a card's compute capability: one table, and the attributes made from it.
//!
//! Sources: the tables "Technical Specifications per Compute Capability" of the CUDA programming guide
//! (threads, blocks and shared memory of a multiprocessor), and the meaning of each number in
//! `cudaDeviceAttr` (`driver_types.h`). Limits that no supported card has differently (textures, grids)
//! are those read from an H200.

use std::collections::BTreeMap;

use crate::card::Card;

/// Limits of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Major and minor number.
    pub version: (u32, u32),
    /// Threads that a multiprocessor holds.
    pub threads: i64,
    /// Blocks that a multiprocessor holds.
    pub blocks: i64,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_bytes: i64,
    /// Bytes of shared memory that one block may opt in to.
    pub shared_optin_bytes: i64,
    /// Bytes of shared memory that the driver keeps in each block.
    pub shared_reserved_bytes: i64,
    /// Single-precision operations for each double-precision one.
    pub single_to_double: i64,
    /// Share of the second-level cache that may persist, in eighths.
    pub persisting_eighths: i64,
}

#[rustfmt::skip]
const TABLE: &[Capability] = &[
    row((7, 0), 2048, 32,  96, 96, 0,  2, 0),
    row((7, 2), 2048, 32,  96, 96, 0, 32, 0),
    row((7, 5), 1024, 16,  64, 64, 0, 32, 0),
    row((8, 0), 2048, 32, 164, 163, 1,  2, 6),
    row((8, 6), 1536, 16, 100,  99, 1, 64, 6),
    row((8, 7), 1536, 16, 164, 163, 1, 64, 6),
    row((8, 9), 1536, 24, 100,  99, 1, 64, 6),
    row((9, 0), 2048, 32, 228, 227, 1,  2, 5),
    row((10, 0), 2048, 32, 228, 227, 1,  2, 5),
    row((10, 3), 2048, 32, 228, 227, 1, 64, 5),
    row((12, 0), 1536, 24, 100,  99, 1, 64, 5),
    row((12, 1), 1536, 24, 100,  99, 1, 64, 5),
];

#[allow(clippy::too_many_arguments)] // a row of the table
const fn row(
    version: (u32, u32),
    threads: i64,
    blocks: i64,
    shared_kib: i64,
    optin_kib: i64,
    reserved_kib: i64,
    single_to_double: i64,
    persisting_eighths: i64,
) -> Capability {
    Capability {
        version,
        threads,
        blocks,
        shared_bytes: shared_kib * 1024,
        shared_optin_bytes: optin_kib * 1024,
        shared_reserved_bytes: reserved_kib * 1024,
        single_to_double,
        persisting_eighths,
    }
}

/// The limits of a compute capability; of the next lower one where it is not in the table.
pub fn limits(version: (u32, u32)) -> Capability {
    let lower = TABLE.iter().rev().find(|row| row.version <= version);
    *lower.unwrap_or(&TABLE[0])
}

/// The values of `cudaDeviceAttr` that a card would report.
pub fn attributes(card: &Card) -> BTreeMap<u32, i64> {
    let limits = limits(card.compute_capability);
    let (major, minor) = card.compute_capability;
    let since = |first: u32| i64::from(major >= first);
    let l2 = i64::try_from(card.l2_bytes).unwrap_or(i64::MAX);
    let own = [
        // Registers, shared memory and threads.
        (8, 48 * 1024),
        (12, 65536),
        (39, limits.threads),
        (81, limits.shared_bytes),
        (82, 65536),
        (97, limits.shared_optin_bytes),
        (106, limits.blocks),
        (111, limits.shared_reserved_bytes),
        // The card's own figures.
        (13, i64::from(card.clock_khz)),
        (16, i64::from(card.multiprocessors)),
        (32, i64::from(card.ecc)),
        (36, i64::from(card.memory_clock_khz)),
        (37, i64::from(card.memory_bus_bits)),
        (38, l2),
        (75, i64::from(major)),
        (76, i64::from(minor)),
        (87, limits.single_to_double),
        // Persisting lines and access windows came with 8.0; clusters and synchronisation domains with 9.0.
        (108, l2 / 8 * limits.persisting_eighths),
        (109, 134_217_728 * since(8)),
        (120, since(9)),
        (126, 1 + 3 * since(9)),
    ];
    let mut all: BTreeMap<u32, i64> = EVERYWHERE.iter().copied().collect();
    all.extend(own);
    all
}

/// Attributes that are the same on every card from 7.0 on: limits of blocks, grids, textures and
/// surfaces, and abilities under Linux with a PCI card.
#[rustfmt::skip]
const EVERYWHERE: &[(u32, i64)] = &[
    // Blocks, grids, constants, warps, copies.
    (1, 1024), (2, 1024), (3, 1024), (4, 64), (5, 2_147_483_647), (6, 65535), (7, 65535), (9, 65536),
    (10, 32), (11, 2_147_483_647), (14, 512), (15, 1), (17, 0), (18, 0), (19, 1), (20, 0),
    // Textures.
    (21, 131_072), (22, 131_072), (23, 65536), (24, 16384), (25, 16384), (26, 16384), (27, 32768),
    (28, 32768), (29, 2048), (30, 512), (42, 32768), (43, 2048), (44, 1), (45, 32768), (46, 32768),
    (47, 8192), (48, 8192), (49, 32768), (51, 32), (52, 32768), (53, 32768), (54, 2046),
    (69, 268_435_456), (70, 131_072), (71, 65000), (72, 2_097_120), (73, 32768), (74, 32768), (77, 32768),
    // Surfaces.
    (55, 32768), (56, 131_072), (57, 65536), (58, 16384), (59, 16384), (60, 16384), (61, 32768),
    (62, 2048), (63, 32768), (64, 32768), (65, 2048), (66, 32768), (67, 32768), (68, 2046),
    // Kernels at a time, place on the bus, driver model, copy engines, addresses.
    (31, 1), (33, 0), (34, 0), (35, 0), (40, 2), (41, 1), (50, 0),
    // Priorities, first-level caches, managed memory, boards.
    (78, 1), (79, 1), (80, 1), (83, 1), (84, 0), (85, 0), (86, 0), (88, 0), (89, 1), (90, 1), (91, 1),
    (92, 0), (93, 0), (94, 0), (95, 1), (96, 1), (98, 0), (99, 1), (100, 0), (101, 0), (102, 1), (103, 1),
    (104, 0), (105, 0), (107, 1), (110, 1), (112, 1), (113, 1), (114, 1), (115, 1), (116, 1), (117, 1),
    (118, 100), (119, 9), (121, 1), (122, 1), (123, 1), (124, 1), (125, 1), (127, 1), (128, 1), (129, 1),
    (130, 0), (131, -1), (132, 0), (133, 0), (134, 0), (135, 0), (136, 0), (137, 0), (138, 0), (139, 0),
    (140, 0), (141, 1), (142, 1), (143, 0), (144, 1), (145, 1), (146, 0), (147, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_rises() {
        assert!(TABLE.windows(2).all(|pair| pair[0].version < pair[1].version));
        assert!(TABLE.iter().all(|row| row.shared_optin_bytes <= row.shared_bytes));
    }

    #[test]
    fn a_capability_that_is_not_listed_takes_the_next_lower_one() {
        assert_eq!(limits((9, 0)).shared_bytes, 233_472);
        assert_eq!(limits((9, 7)).version, (9, 0));
        assert_eq!(limits((6, 1)).version, (7, 0));
        assert_eq!(limits((99, 0)).version, (12, 1));
    }

    #[test]
    fn the_table_gives_what_an_h200_reports() {
        let measured = crate::find("h200").expect("a built-in profile").card;
        let derived = attributes(&measured);
        let differing: Vec<u32> = measured
            .attributes
            .iter()
            .filter(|(number, value)| derived.get(number) != Some(value))
            .map(|(number, _)| *number)
            .collect();
        // Where it sits on the bus, how many copy engines it has, and its maker's numbers.
        assert_eq!(differing, [34, 40, 139, 140]);
    }
}

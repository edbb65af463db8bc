//! Tables that come with vramwise. How each was made: `tables/README.md`.

/// A table's card (as PyTorch names it), cuDNN version and contents.
pub struct Shipped {
    /// Name of the card.
    pub gpu: &'static str,
    /// `cudnnGetVersion()`.
    pub cudnn: u32,
    /// The file, for [`crate::Table::from_bytes`].
    pub bytes: &'static [u8],
}

/// Every table.
pub const ALL: [Shipped; 1] = [Shipped {
    gpu: "NVIDIA H200",
    cudnn: 91900,
    bytes: include_bytes!("../tables/h200-cudnn-9.19.bin"),
}];

/// The table for a card: the one of this cuDNN if there is one, else the one of the nearest version.
#[must_use]
pub fn for_card(gpu: &str, cudnn: u32) -> Option<&'static Shipped> {
    static TABLES: [Shipped; 1] = ALL;
    TABLES.iter().filter(|t| t.gpu == gpu).min_by_key(|t| t.cudnn.abs_diff(cudnn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{self, Choice};
    use crate::table::Table;

    #[test]
    fn every_table_is_what_it_says() {
        for shipped in &ALL {
            let table = Table::from_bytes(shipped.bytes).unwrap();
            assert_eq!(
                (table.facts().gpu.as_str(), table.facts().cudnn),
                (shipped.gpu, shipped.cudnn)
            );
            assert!(for_card(shipped.gpu, shipped.cudnn).is_some());
        }
        assert!(for_card("Quadro 600", 91900).is_none());
    }

    #[test]
    fn a_layer_of_resnet18_is_known() {
        let table = Table::from_bytes(for_card("NVIDIA H200", 91900).unwrap().bytes).unwrap();
        let signature = "dgrad{a=1 b=0 conv=c{math=0 mode=1 dil=1,1 stride=1,1 post=1,1 pad=1,1 dims=2} \
                         w=f32[128,128,3,3]@32 x=f32[32,128,28,28]@32 y=f32[32,128,28,28]@32}";
        assert_eq!(table.get(&keys::plan(Choice::First, signature)), Some(&[71, 26_279_952][..]));
    }
}

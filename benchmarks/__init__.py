"""What weft costs, measured: `make bench`. A file for each figure; floors and peers are measured in the same run."""

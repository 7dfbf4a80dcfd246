"""Takes out of a run's samples.h5 what its format 1 did not have; the second argument is the version
that it then says of itself."""
import sys

import h5py

with h5py.File(sys.argv[1], "r+") as file:
    for name in ("ranks", "rank_steps", "steps/phase"):
        del file[name]
    file.attrs["format_version"] = int(sys.argv[2])

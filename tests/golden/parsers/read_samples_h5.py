"""Reads a run's samples.h5 with h5py. Prints root attributes, the record's text and every dataset
with its shape, type, attributes and values as JSON."""
import json
import sys

import h5py


def plain(value):
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float) and value != value:
        return "nan"
    return value


datasets = {}


def visit(name, item):
    if isinstance(item, h5py.Dataset):
        datasets[name] = {"shape": list(item.shape), "maxshape": [str(n) for n in item.maxshape or ()],
                          "chunks": list(item.chunks) if item.chunks else None,
                          "type": str(item.dtype),
                          "attributes": {key: plain(value) for key, value in item.attrs.items()
                                         if key not in ("DIMENSION_LIST", "REFERENCE_LIST")},
                          "scales": [[scale.name for scale in one.values()] for one in item.dims],
                          "values": plain(item[()])}


with h5py.File(sys.argv[1], "r") as file:
    file.visititems(visit)
    json.dump({"attributes": {key: plain(value) for key, value in file.attrs.items()},
               "datasets": datasets}, sys.stdout)

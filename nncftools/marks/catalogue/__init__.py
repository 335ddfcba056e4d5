"""Functions worth marking, a file for each library; plain data, which any Python from 3.8 on can read.

A file's ``CALLS`` are, by module and by qualified name in it, the facts of a function where it is defined:

- ``kind``: one of ``nncftools.session.kinds.KINDS``;
- ``call``: how it is shown, where that is not the root package and the qualified name;
- ``step``: true for what a loop does again and again; the steps of a loop are shown as one operation;
- ``saves``: position and name of the argument that says where an OpenVINO model is saved.

What contains other kinds of work (a whole export) is not listed: it would hide them one level down.
"""

LIBRARIES = {
    "QEfficient": "qefficient",
    "nncf": "nncf",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "openvino_tokenizers": "openvino",
    "optimum": "optimum",
    "torch": "torch",
    "transformers": "transformers",
}
"""The file of each root package, read when that is first imported."""

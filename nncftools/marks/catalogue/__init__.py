"""Functions worth marking, one file per library: plain data that any Python from 3.8 on can read.

``CALLS`` of a file maps a module, and a function's qualified name in the module that defines it, to facts:

- ``kind``: one of ``nncftools.session.kinds.KINDS``;
- ``call``: the name to show, when that is not the root package and the qualified name;
- ``step``: true for the body of a loop; the steps of one loop are shown as one operation;
- ``saves``: position and name of the argument that holds the path of a saved OpenVINO model.

Functions that contain other kinds of work (a whole export) are not listed: they would push those one level down.
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
"""The file of each root package, read when the package is first imported."""

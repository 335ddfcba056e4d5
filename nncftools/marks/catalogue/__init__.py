"""Functions worth marking, one file per library: plain data that any Python from 3.8 on can read.

``CALLS`` of a file maps a module, and a function's qualified name in the module that defines it, to facts:

- ``kind``: one of ``nncftools.session.operation.KINDS``, which is also its name; or
- ``name``: the name of a step inside of such a call, which has no kind and so a colour of its own;
- ``call``: the function to show, when that is not the root package and the qualified name;
- ``step``: true for the body of a loop; the steps of one loop are shown as one operation;
- ``logged``: how many calls inside one operation get lines of their own in the log, instead of 1,000; further calls are
  counted together;
- ``leaf``: true when nothing inside of it is marked;
- ``arguments``: by the name of a parameter, how it is shown, in this order: ``{}`` stands for a number, a text or the
  name of an enumeration's member, ``{value}`` for the value of such a member, ``{file}`` for the last part of a path; a
  text without braces is a flag, shown unless the argument is None or False; after ``!`` it is shown if the argument is
  False. None and defaults are left out;
- ``always``: the parameters whose default is shown, too;
- ``saves``: the parameter that holds the path of what is saved;
- ``parameters``: the names of its parameters by position, for a compiled function, which does not tell them.

Functions that contain other kinds of work (a whole export) are not listed: they would push those one level down. A
function that the installed version does not have is skipped.
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

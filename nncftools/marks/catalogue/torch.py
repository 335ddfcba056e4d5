"""PyTorch: export and its steps, saving and loading, and the steps of a training loop."""

CALLS = {
    "torch.onnx": {
        "export": {
            "kind": "Export",
            "call": "torch.onnx.export",
            "arguments": {"f": "{file}", "dynamo": "dynamo", "opset_version": "opset {}"},
            "saves": "f",
        },
    },
    "torch.onnx._internal.torchscript_exporter.utils": {
        "_trace_and_get_graph_from_model": {"name": "Tracing", "call": "torch.onnx.trace"},
        "_optimize_graph": {"name": "Graph optimization", "call": "torch.onnx.optimize_graph"},
    },
    "torch.onnx._internal.exporter._core": {
        "_exported_program_to_onnx_program": {"name": "Translation", "call": "torch.onnx.exported_program_to_onnx"},
    },
    "torch.onnx._internal.exporter._onnx_program": {
        "ONNXProgram.optimize": {"name": "Graph optimization", "call": "torch.onnx.ONNXProgram.optimize"},
        "ONNXProgram.save": {
            "kind": "Saving",
            "call": "torch.onnx.ONNXProgram.save",
            "arguments": {"destination": "{file}"},
            "saves": "destination",
        },
    },
    "torch.export": {"export": {"kind": "Export", "call": "torch.export.export"}},
    "torch.export.exported_program": {
        "ExportedProgram.run_decompositions": {
            "name": "Decomposition",
            "call": "torch.export.ExportedProgram.run_decompositions",
        },
    },
    "torch.jit._trace": {
        "trace": {"kind": "Export", "call": "torch.jit.trace"},
        "_check_trace": {"name": "Trace check", "call": "torch.jit.check_trace"},
    },
    "torch.jit._freeze": {"freeze": {"name": "Freezing", "call": "torch.jit.freeze"}},
    "torch.serialization": {
        "save": {"kind": "Saving", "arguments": {"f": "{file}"}, "saves": "f"},
        "load": {"kind": "Model Loading", "arguments": {"f": "{file}"}},
    },
    "torch.jit._serialization": {
        "save": {"kind": "Saving", "call": "torch.jit.save", "arguments": {"f": "{file}"}, "saves": "f"},
        "load": {"kind": "Model Loading", "call": "torch.jit.load", "arguments": {"f": "{file}"}},
    },
    "torch.autograd": {
        "backward": {"kind": "Training", "call": "torch.autograd.backward", "step": True},
    },
    "torch.optim.optimizer": {
        "Optimizer.zero_grad": {"kind": "Training", "call": "torch.optim.Optimizer.zero_grad", "step": True},
    },
    "torch.optim._adafactor": {
        "Adafactor.step": {"kind": "Training", "call": "torch.optim.Adafactor.step", "step": True},
    },
    "torch.optim._muon": {"Muon.step": {"kind": "Training", "call": "torch.optim.Muon.step", "step": True}},
    "torch.optim.adadelta": {"Adadelta.step": {"kind": "Training", "call": "torch.optim.Adadelta.step", "step": True}},
    "torch.optim.adagrad": {"Adagrad.step": {"kind": "Training", "call": "torch.optim.Adagrad.step", "step": True}},
    "torch.optim.adam": {"Adam.step": {"kind": "Training", "call": "torch.optim.Adam.step", "step": True}},
    "torch.optim.adamax": {"Adamax.step": {"kind": "Training", "call": "torch.optim.Adamax.step", "step": True}},
    "torch.optim.adamw": {"AdamW.step": {"kind": "Training", "call": "torch.optim.AdamW.step", "step": True}},
    "torch.optim.asgd": {"ASGD.step": {"kind": "Training", "call": "torch.optim.ASGD.step", "step": True}},
    "torch.optim.lbfgs": {"LBFGS.step": {"kind": "Training", "call": "torch.optim.LBFGS.step", "step": True}},
    "torch.optim.nadam": {"NAdam.step": {"kind": "Training", "call": "torch.optim.NAdam.step", "step": True}},
    "torch.optim.radam": {"RAdam.step": {"kind": "Training", "call": "torch.optim.RAdam.step", "step": True}},
    "torch.optim.rmsprop": {"RMSprop.step": {"kind": "Training", "call": "torch.optim.RMSprop.step", "step": True}},
    "torch.optim.rprop": {"Rprop.step": {"kind": "Training", "call": "torch.optim.Rprop.step", "step": True}},
    "torch.optim.sgd": {"SGD.step": {"kind": "Training", "call": "torch.optim.SGD.step", "step": True}},
    "torch.optim.sparse_adam": {
        "SparseAdam.step": {"kind": "Training", "call": "torch.optim.SparseAdam.step", "step": True},
    },
}

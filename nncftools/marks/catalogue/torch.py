"""PyTorch: export, saving and loading, and the steps of a training loop."""

CALLS = {
    "torch.onnx": {"export": {"kind": "Export", "call": "torch.onnx.export"}},
    "torch.export": {"export": {"kind": "Export", "call": "torch.export.export"}},
    "torch.jit._trace": {"trace": {"kind": "Export", "call": "torch.jit.trace"}},
    "torch.serialization": {
        "save": {"kind": "Saving"},
        "load": {"kind": "Model Loading"},
    },
    "torch.jit._serialization": {
        "save": {"kind": "Saving", "call": "torch.jit.save"},
        "load": {"kind": "Model Loading", "call": "torch.jit.load"},
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

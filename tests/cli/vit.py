"""vit.py FILE.pt2: a small vision transformer of torchvision, of four heads in each of two layers."""
import logging
import sys

try:
    import torch
    from torchvision.models import VisionTransformer
except ImportError as error:
    print(f"torchvision cannot be imported: {error}")
    sys.exit(77)

logging.disable()
torch.manual_seed(0)
network = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64,
                            num_classes=10)
program = torch.export.export(network.train(), (torch.randn(2, 3, 32, 32),),
                              dynamic_shapes=({0: torch.export.Dim("batch")},))
torch.export.save(program, sys.argv[1])

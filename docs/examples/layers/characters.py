"""A language model of characters, of layers of LRN where torch.nn.GRU could be (layers.md)."""

import torch
from torch import nn

from nmt.layers import LRN

lines = """the north wind and the sun were disputing which was the stronger.
a traveler came along wrapped in a warm cloak.
they agreed that the one who first made the traveler take his cloak off was stronger.
"""
text = 2 * lines
letters = sorted(set(text))
ids = torch.tensor([letters.index(letter) for letter in text])


class LanguageModel(nn.Module):
    def __init__(self, letters, size=96):
        super().__init__()
        self.embedding = nn.Embedding(letters, 32)
        self.layers = LRN(32, size, num_layers=2, batch_first=True, dropout=0.1)
        self.output = nn.Linear(size, letters)

    def forward(self, x, state=None):
        outputs, state = self.layers(self.embedding(x), state)
        return self.output(outputs), state


torch.manual_seed(1)
model = LanguageModel(len(letters))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for _ in range(40):
    starts = torch.randint(len(ids) - 33, (16,))
    batch = torch.stack([ids[start : start + 33] for start in starts.tolist()])
    logits, _ = model(batch[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"{loss.item():.2f} nats for each letter")

model.eval()
letter, state, written = torch.tensor([[letters.index("t")]]), None, "t"
with torch.no_grad():
    for _ in range(40):
        logits, state = model(letter, state)  # the state is carried from letter to letter
        letter = logits.argmax(-1)
        written += letters[letter.item()]
print(written)

"""Cases of tokens: embeddings, attention, recurrent layers, tied weights."""
import torch
from torch import nn
from torch.nn import functional as F

from layers import case, conv, image, linear, parameter, relu, tokens, wave


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = parameter(size)

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def sequence(*sizes):
    return wave(2, *(sizes or (5, 6)))


case("layer_norm_mlp", lambda m, x: m.fc(F.gelu(m.l2(m.norm(F.gelu(m.l1(x)))))), image(5), l1=linear(5, 8),
     norm=nn.LayerNorm(8), l2=linear(8, 6), fc=linear(6, 3))
case("rms_norm", lambda m, x: m.fc(m.norm(m.l1(x)).mean(1)), sequence(), l1=linear(6, 8), norm=RmsNorm(8),
     fc=linear(8, 3))
case("rms_norm_operation", lambda m, x: m.fc(m.norm(m.l1(x)).mean(1)), sequence(), l1=linear(6, 8),
     norm=nn.RMSNorm(8), fc=linear(8, 3))
case("embedding_linear", lambda m, x: m.fc(m.l1(m.table(x)).mean(1)), tokens(5), table=nn.Embedding(7, 8),
     l1=linear(8, 6), fc=linear(6, 3))


def tied_head(m, x):
    return F.linear(relu(m.l1(m.table(x))), m.table.weight)


case("embedding_tied_head", tied_head, tokens(5), table=nn.Embedding(7, 8), l1=linear(8, 8))
case("integer_and_float_inputs", lambda m, x, y: m.fc(m.table(x).mean(1) + relu(m.l1(y))), tokens(5), image(4),
     table=nn.Embedding(7, 8), l1=linear(4, 8), fc=linear(8, 3))


def tied_linears():
    first, second = linear(8, 8), linear(8, 8)
    second.weight = first.weight
    return nn.ModuleList([first, second])


case("tied_linear_module_weight", lambda m, x: m.fc(m.tied[1](relu(m.tied[0](m.l1(x))))), image(5), l1=linear(5, 8),
     tied=tied_linears, fc=linear(8, 3))


def last_step(m, x):
    return m.fc(m.rnn(m.l1(x))[0][:, -1])


def recurrent(kind, **options):
    return lambda: kind(6, 4, batch_first=True, **options)


case("lstm_linear", last_step, sequence(5, 3), l1=linear(3, 6), rnn=recurrent(nn.LSTM), fc=linear(4, 3))
case("lstm_bidirectional", last_step, sequence(5, 3), l1=linear(3, 6), rnn=recurrent(nn.LSTM, bidirectional=True),
     fc=linear(8, 3))
case("lstm_two_layers", last_step, sequence(5, 3), l1=linear(3, 6),
     rnn=recurrent(nn.LSTM, num_layers=2, bidirectional=True), fc=linear(8, 3))
case("lstm_projected", last_step, sequence(5, 3), l1=linear(3, 6), rnn=recurrent(nn.LSTM, proj_size=2),
     fc=linear(2, 3))
case("lstm_last_state", lambda m, x: m.fc(m.rnn(m.l1(x))[1][0][0]), sequence(5, 3), l1=linear(3, 6),
     rnn=recurrent(nn.LSTM), fc=linear(4, 3))
case("gru_linear", last_step, sequence(5, 3), l1=linear(3, 6), rnn=recurrent(nn.GRU), fc=linear(4, 3))
case("gru_time_first", lambda m, x: m.fc(m.rnn(m.l1(x).transpose(0, 1))[0].mean(0)), sequence(5, 3), l1=linear(3, 6),
     rnn=lambda: nn.GRU(6, 4, num_layers=2), fc=linear(4, 3))
case("rnn_tanh", last_step, sequence(5, 3), l1=linear(3, 6), rnn=recurrent(nn.RNN), fc=linear(4, 3))


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def separate_qkv(m, x):
    q, k, v = (heads(layer(x), 2) for layer in (m.q, m.k, m.v))
    y = (q @ k.transpose(-2, -1) * 0.5).softmax(-1) @ v
    return m.fc(m.proj(y.transpose(1, 2).flatten(2)).mean(1))


def one_head(m, x):
    y = (m.q(x) @ m.k(x).transpose(-2, -1) * 0.5).softmax(-1) @ m.v(x)
    return m.fc(m.proj(y).mean(1))


def packed_qkv(m, x):
    b, n, c = x.shape
    q, k, v = m.qkv(x).reshape(b, n, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v)
    return m.fc(m.proj(y.transpose(1, 2).reshape(b, n, 16)).mean(1))


def short_packed_qkv(m, x):
    b, n, _ = x.shape
    q, k, v = m.qkv(x).reshape(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    return m.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, 8)).mean(1)


def module_attention(m, x):
    x = m.l1(x)
    return m.fc((x + m.att(x, x, x, need_weights=False)[0]).mean(1))


def selfsim(m, x):
    a, b = m.a(x).flatten(2), m.b(x).flatten(2)
    return m.fc((m.v(x).flatten(2) @ (a.transpose(1, 2) @ b)).mean(2))


def pos_embed_cls_token(m, x):
    x = m.a(x).flatten(2).transpose(1, 2)
    x = torch.cat([m.cls.expand(x.shape[0], -1, -1), x], 1) + m.pos
    return m.fc((x + m.l2(relu(m.l1(x))))[:, 0])


case("attention_separate_qkv", separate_qkv, sequence(), q=linear(6, 8), k=linear(6, 8), v=linear(6, 8),
     proj=linear(8, 6), fc=linear(6, 3))
case("attention_one_head", one_head, sequence(), q=linear(6, 4), k=linear(6, 4), v=linear(6, 8), proj=linear(8, 6),
     fc=linear(6, 3))
case("timm_attention_qkv_unbind", packed_qkv, sequence(), qkv=linear(6, 48), proj=linear(16, 6), fc=linear(6, 3))
case("mha_residual", module_attention, sequence(5, 4), l1=linear(4, 8),
     att=lambda: nn.MultiheadAttention(8, 2, batch_first=True), fc=linear(8, 3))
case("mha_then_packed_qkv", lambda m, x: m.fc(short_packed_qkv(m, (y := m.l1(x)) + m.att(y, y, y, need_weights=False)[0])),
     sequence(5, 4), l1=linear(4, 8), att=lambda: nn.MultiheadAttention(8, 2, batch_first=True), qkv=linear(8, 24),
     proj=linear(8, 6), fc=linear(6, 3))
case("mha_with_weights", lambda m, x: m.fc(m.att(m.l1(x), m.l1(x), m.l1(x))[0].mean(1)), sequence(5, 4),
     l1=linear(4, 8), att=lambda: nn.MultiheadAttention(8, 2, batch_first=True), fc=linear(8, 3))
case("mha_cross", lambda m, x, y: m.fc(m.att(m.l1(x), m.l2(y), m.l2(y), need_weights=False)[0].mean(1)),
     sequence(5, 4), sequence(3, 6), l1=linear(4, 8), l2=linear(6, 12),
     att=lambda: nn.MultiheadAttention(8, 2, batch_first=True, kdim=12, vdim=12), fc=linear(8, 3))
case("mha_of_memory", lambda m, x, y: m.fc(m.att(m.l1(x), (memory := m.l2(y)), memory, need_weights=False)[0].mean(1)),
     sequence(5, 4), sequence(3, 6), l1=linear(4, 12), l2=linear(6, 12),
     att=lambda: nn.MultiheadAttention(12, 2, batch_first=True), fc=linear(12, 3))
case("encoder_layer", lambda m, x: m.fc(m.layer(m.l1(x)).mean(1)), sequence(5, 4), l1=linear(4, 8),
     layer=lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), fc=linear(8, 3))
case("matmul_selfsim", selfsim, image(3, 3, 3), a=conv(3, 8), b=conv(3, 8), v=conv(3, 6), fc=linear(6, 3))
case("pos_embed_cls_token", pos_embed_cls_token, image(3, 3, 3), a=conv(3, 8), cls=parameter(1, 1, 8),
     pos=parameter(1, 10, 8), l1=linear(8, 12), l2=linear(12, 8), fc=linear(8, 3))
case("einsum_linear", lambda m, x: m.fc(torch.einsum("btc,oc->bto", m.l1(x), m.w).mean(1)), sequence(), l1=linear(6, 8),
     w=parameter(5, 8), fc=linear(5, 3))

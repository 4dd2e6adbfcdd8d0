/* Instructions of the CDNA GPUs that tests/amd_emulated executes itself, beside the emulator of the checkout.
 *
 * Each function runs one instruction for one wave of 64 lanes.  The instruction's words are read at the wave's
 * program counter.  Register files are arrays of 32-bit words: reg * 64 + lane; the scalar file holds inline
 * constants from 128 on and the program counter at 256.  A return value other than 0 is an error that Python
 * turns into a sentence.  Addresses are the host's own: device memory is host memory here. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 64, EXEC = 126, M0 = 124, PC = 256 };
enum { OK = 0, BAD_BROADCAST = 1, BAD_LDS = 2, BAD_OPERAND = 3, BAD_LANES = 4 };
enum type { F16, BF16, F32, I8, FP8_OCP, BF8_OCP, FP8_FNUZ, BF8_FNUZ };

typedef struct wave {
  uint32_t *sgpr, *vgpr, *acc;
  uint8_t *lds;
  uint64_t lds_bytes;
} wave;

typedef struct mfma_shape {
  int32_t m, n, k, blocks, type_a, type_b;
} mfma_shape;

static uint64_t pc_of(const wave *w) { return w->sgpr[PC] | (uint64_t)w->sgpr[PC + 1] << 32; }
static void set_pc(wave *w, uint64_t pc) { w->sgpr[PC] = (uint32_t)pc, w->sgpr[PC + 1] = (uint32_t)(pc >> 32); }
static uint32_t word(const wave *w, int index) { return ((const uint32_t *)pc_of(w))[index]; }
static uint64_t exec_of(const wave *w) { return w->sgpr[EXEC] | (uint64_t)w->sgpr[EXEC + 1] << 32; }
static uint64_t bits(uint64_t value, int low, int count) { return value >> low & ((1ull << count) - 1); }
static float as_float(uint32_t x) {
  float f;
  memcpy(&f, &x, 4);
  return f;
}
static uint32_t as_bits(float f) {
  uint32_t x;
  memcpy(&x, &f, 4);
  return x;
}

/* ---- number formats ---- */

static float small_float(uint32_t x, int exponent_bits, int mantissa_bits, int bias, int ieee_specials) {
  uint32_t sign = x >> (exponent_bits + mantissa_bits) & 1;
  int exponent = (int)(x >> mantissa_bits & ((1u << exponent_bits) - 1));
  uint32_t mantissa = x & ((1u << mantissa_bits) - 1);
  float value;
  if (ieee_specials && exponent == (1 << exponent_bits) - 1) value = mantissa ? NAN : INFINITY;
  else if (exponent == 0) value = ldexpf((float)mantissa, 1 - bias - mantissa_bits);
  else value = ldexpf((float)(mantissa | 1u << mantissa_bits), exponent - bias - mantissa_bits);
  return sign ? -value : value;
}

static float half_to_float(uint32_t x) { return small_float(x & 0xffff, 5, 10, 15, 1); }

static uint32_t float_to_half(float f) { /* round to nearest even */
  uint32_t x = as_bits(f), sign = x >> 16 & 0x8000, size = x & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size < 0x38800000) return sign | (uint32_t)lrintf(ldexpf(as_float(size), 24)); /* subnormal: units of 2^-24 */
  uint32_t kept = size - 0x38000000, tail = kept & 0x1fff;
  return sign | ((kept >> 13) + (tail > 0x1000 || (tail == 0x1000 && (kept >> 13 & 1))));
}

static uint32_t float_to_bf16(float f) {
  uint32_t x = as_bits(f);
  if ((x & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}

/* To nearest even; what has no number there is its NaN. */
static uint32_t float_to_fnuz(float f, int mantissa_bits, int bias) {
  float size = fabsf(f);
  if (!(size < INFINITY)) return 0x80;
  int least = 1 - bias, exponent = size > 0 && ilogbf(size) > least ? ilogbf(size) : least;
  float units = rintf(ldexpf(size, mantissa_bits - exponent)); /* may be a whole power of two more */
  uint32_t code = (uint32_t)units + ((uint32_t)(exponent - least) << mantissa_bits);
  if (code > 0x7f) return 0x80;
  return code && signbit(f) ? code | 0x80 : code;
}

static float element(uint32_t packed, int index, int type) {
  switch (type) {
    case F32:
      return as_float(packed);
    case F16:
      return half_to_float(packed >> 16 * index);
    case BF16:
      return as_float((packed >> 16 * index & 0xffff) << 16);
    default:
      break;
  }
  uint32_t x = packed >> 8 * index & 0xff;
  switch (type) {
    case FP8_OCP:
      return (x & 0x7f) == 0x7f ? NAN : small_float(x, 4, 3, 7, 0);
    case BF8_OCP:
      return small_float(x, 5, 2, 15, 1);
    case FP8_FNUZ:
      return x == 0x80 ? NAN : small_float(x, 4, 3, 8, 0);
    default:
      return x == 0x80 ? NAN : small_float(x, 5, 2, 16, 0);
  }
}

/* For the tests of the formats. */
float tw_element(uint32_t packed, int index, int type) { return element(packed, index, type); }
static uint32_t rounded(float f, int type) {
  switch (type) {
    case F16:
      return float_to_half(f);
    case FP8_FNUZ:
      return float_to_fnuz(f, 3, 8);
    case BF8_FNUZ:
      return float_to_fnuz(f, 2, 16);
    default:
      return float_to_bf16(f);
  }
}
uint32_t tw_round(float f, int type) { return rounded(f, type); }

/* ---- matrix instructions ----
 * A is m x k, B is k x n, `blocks` of them side by side.  Lane l holds row (column) l % m of A (of B), of the
 * k slice (one block) or the block (several) with index l / m.  In the result a lane keeps column l % n; its
 * registers go down the rows in runs of four, a run for each group of lanes, then the next runs. */
int tw_mfma(wave *w, const mfma_shape *s) {
  uint64_t code = word(w, 0) | (uint64_t)word(w, 1) << 32;
  int dst = (int)bits(code, 0, 8), cbsz = (int)bits(code, 8, 3), abid = (int)bits(code, 11, 4);
  int acc_cd = (int)bits(code, 15, 1), acc_a = (int)bits(code, 59, 1), acc_b = (int)bits(code, 60, 1);
  int src[3] = {(int)bits(code, 32, 9), (int)bits(code, 41, 9), (int)bits(code, 50, 9)}, blgp = (int)bits(code, 61, 3);
  int m = s->m, n = s->n, k = s->k, blocks = s->blocks, is_int = s->type_a == I8;
  int type_a = s->type_a, type_b = s->type_b;
  if (src[0] < 256 || src[1] < 256) return BAD_OPERAND;
  if (k * m >= 2048 && !is_int) { /* f8f6f4: cbsz and blgp name the formats of A and B, 0 is fp8, 1 is bf8 */
    if (cbsz > 1 || blgp > 1 || abid) return BAD_BROADCAST;
    type_a = cbsz ? BF8_OCP : FP8_OCP, type_b = blgp ? BF8_OCP : FP8_OCP;
  } else if (blgp || ((cbsz || abid) && blocks == 1)) return BAD_BROADCAST;
  const uint32_t *file_a = (acc_a ? w->acc : w->vgpr) + (src[0] - 256) * LANES;
  const uint32_t *file_b = (acc_b ? w->acc : w->vgpr) + (src[1] - 256) * LANES;
  int groups = LANES / m, slices = blocks == 1 ? groups : 1, per_lane = k / slices; /* elements of a row a lane holds */
  int per_word = type_a == F32 ? 1 : type_a <= BF16 ? 2 : 4;
  static float a[LANES * 128], b[LANES * 128];
  static int32_t ai[LANES * 128], bi[LANES * 128];
  if (blocks > 1) groups = blocks;
  for (int lane = 0; lane < LANES; ++lane)
    for (int j = 0; j < per_lane; ++j) {
      uint32_t wa = file_a[j / per_word * LANES + lane], wb = file_b[j / per_word * LANES + lane];
      int at = lane * per_lane + j;
      if (is_int) ai[at] = (int8_t)(wa >> 8 * (j % 4)), bi[at] = (int8_t)(wb >> 8 * (j % 4));
      else a[at] = element(wa, j % per_word, type_a), b[at] = element(wb, j % per_word, type_b);
    }
  uint32_t *out = (acc_cd ? w->acc : w->vgpr) + dst * LANES;
  static uint32_t result[64 * LANES]; /* C may be what D overwrites */
  int lane_groups = LANES / n, runs = m * n * blocks / LANES, per_block = runs / (blocks > lane_groups ? 1 : blocks);
  for (int reg = 0; reg < runs; ++reg)
    for (int lane = 0; lane < LANES; ++lane) {
      /* Which block and row: with one block, or blocks of which each spans all lanes, groups of lanes split rows;
       * with a block a group of lanes (4x4), the group is the block. */
      int block, row, column = lane % n;
      if (blocks > lane_groups || (m == 4 && n == 4)) block = lane / n, row = reg;
      else block = reg / per_block, row = 4 * lane_groups * (reg % per_block / 4) + 4 * (lane / n) + reg % 4;
      int block_a = blocks > 1 && cbsz ? (block >> cbsz << cbsz) + abid : block;
      uint32_t c;
      if (src[2] >= 256) c = (acc_cd ? w->acc : w->vgpr)[(src[2] - 256 + reg) * LANES + lane];
      else c = w->sgpr[src[2]];
      if (is_int) {
        uint32_t sum = c;
        for (int slice = 0; slice < slices; ++slice) {
          const int32_t *x = ai + ((blocks == 1 ? slice : block_a) * m + row) * per_lane;
          const int32_t *y = bi + ((blocks == 1 ? slice : block) * n + column) * per_lane;
          for (int j = 0; j < per_lane; ++j) sum += (uint32_t)(x[j] * y[j]);
        }
        result[reg * LANES + lane] = sum;
      } else {
        float sum = as_float(c);
        for (int slice = 0; slice < slices; ++slice) {
          const float *x = a + ((blocks == 1 ? slice : block_a) * m + row) * per_lane;
          const float *y = b + ((blocks == 1 ? slice : block) * n + column) * per_lane;
          for (int j = 0; j < per_lane; ++j) sum += x[j] * y[j];
        }
        result[reg * LANES + lane] = as_bits(sum);
      }
    }
  memcpy(out, result, (size_t)runs * LANES * 4); /* matrix instructions ignore the mask of active lanes */
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* WMMA of floats: waves of 32 lanes.  The checkout takes 16-bit elements for those of 8 bits, and registers for constants as
 * C.  A lane has elements of row (column) l % 16 of A (of B).  RDNA 4: eight, lanes from 16 on the upper eight; of the result
 * column l % 16, rows 8 * (l / 16) on.  RDNA 3: all sixteen, in either half of the wave; rows l / 16, and every second. */
typedef struct {
  int32_t type_a, type_b, halves; /* halves: a wave has a line twice */
} wmma_shape;

int tw_wmma(wave *w, const wmma_shape *s) {
  enum { HALF = 32, SIDE = 16 };
  uint64_t code = word(w, 0) | (uint64_t)word(w, 1) << 32;
  int dst = (int)bits(code, 0, 8), src[3] = {(int)bits(code, 32, 9), (int)bits(code, 41, 9), (int)bits(code, 50, 9)};
  int per_word = s->type_a <= BF16 ? 2 : 4, held = s->halves ? SIDE : SIDE / 2;
  float a[2][SIDE][SIDE], b[2][SIDE][SIDE]; /* as either half of the wave reads them */
  uint32_t result[8][HALF];
  if (src[0] < 256 || src[1] < 256) return BAD_OPERAND;
  for (int lane = 0; lane < HALF; ++lane)
    for (int j = 0; j < held; ++j) {
      int half = lane / SIDE, k = s->halves ? j : half * held + j;
      float x = element(w->vgpr[(src[0] - 256 + j / per_word) * HALF + lane], j % per_word, s->type_a);
      float y = element(w->vgpr[(src[1] - 256 + j / per_word) * HALF + lane], j % per_word, s->type_b);
      for (int reader = 0; reader < 2; ++reader)
        if (!s->halves || reader == half) a[reader][lane % SIDE][k] = x, b[reader][lane % SIDE][k] = y;
    }
  for (int reg = 0; reg < 8; ++reg)
    for (int lane = 0; lane < HALF; ++lane) {
      int half = lane / SIDE, row = s->halves ? 2 * reg + half : 8 * half + reg;
      float sum = as_float(src[2] >= 256 ? w->vgpr[(src[2] - 256 + reg) * HALF + lane] : w->sgpr[src[2]]);
      for (int k = 0; k < SIDE; ++k) sum += a[half][row][k] * b[half][lane % SIDE][k];
      result[reg][lane] = as_bits(sum);
    }
  memcpy(w->vgpr + dst * HALF, result, sizeof result);
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- atomic additions ---- */

enum atomic { ADD_U32, ADD_F32, PK_ADD_F16, PK_ADD_BF16, SWAP, CMPSWAP };

static uint32_t atomic(uint32_t *at, int kind, uint32_t value, uint32_t expected) {
  uint32_t old, low, high;
  memcpy(&old, at, 4);
  switch (kind) {
    case ADD_U32:
      value += old;
      break;
    case ADD_F32:
      value = as_bits(as_float(old) + as_float(value));
      break;
    case PK_ADD_F16:
      low = float_to_half(half_to_float(old) + half_to_float(value));
      high = float_to_half(half_to_float(old >> 16) + half_to_float(value >> 16));
      value = low | high << 16;
      break;
    case PK_ADD_BF16:
      low = float_to_bf16(as_float(old << 16) + as_float(value << 16));
      high = float_to_bf16(as_float(old & 0xffff0000) + as_float(value & 0xffff0000));
      value = low | high << 16;
      break;
    case CMPSWAP:
      value = old == expected ? value : old;
      break;
    default:
      break;
  }
  memcpy(at, &value, 4);
  return old;
}

/* ---- buffer instructions ---- */

typedef struct memory_op {
  int32_t bytes;  /* of one lane's data in memory */
  int32_t store;  /* 1 store, 0 load, 2 atomic */
  int32_t sign;   /* a narrow load is sign-extended */
  int32_t half;   /* 0 whole register, 1 the low half and keep the high one, 2 the high half */
  int32_t atomic; /* enum atomic */
} memory_op;

static void put_loaded(uint32_t *reg, const memory_op *op, uint32_t value) {
  if (op->sign) value = op->bytes == 1 ? (uint32_t)(int32_t)(int8_t)value : (uint32_t)(int32_t)(int16_t)value;
  if (op->half == 1) *reg = (*reg & 0xffff0000) | (value & 0xffff);
  else if (op->half == 2) *reg = (*reg & 0xffff) | value << 16;
  else *reg = value;
}

int tw_buffer(wave *w, const memory_op *op) {
  uint64_t code = word(w, 0) | (uint64_t)word(w, 1) << 32, exec = exec_of(w);
  uint32_t inst_offset = (uint32_t)bits(code, 0, 12), offen = (uint32_t)bits(code, 12, 1),
           idxen = (uint32_t)bits(code, 13, 1);
  uint32_t returns = (uint32_t)bits(code, 14, 1), to_lds = (uint32_t)bits(code, 16, 1);
  int vaddr = (int)bits(code, 32, 8), vdata = (int)bits(code, 40, 8), srsrc = (int)bits(code, 48, 5) * 4;
  int in_acc = (int)bits(code, 55, 1), soffset_at = (int)bits(code, 56, 8);
  const uint32_t *v = w->sgpr + srsrc;
  uint64_t base = (v[0] | (uint64_t)v[1] << 32) & 0xffffffffffffull;
  uint64_t stride = v[1] >> 16 & 0x3fff, records = v[2], soffset = w->sgpr[soffset_at];
  uint32_t *file = in_acc ? w->acc : w->vgpr;
  for (int lane = 0; lane < LANES; ++lane) {
    if (!(exec >> lane & 1)) continue;
    uint64_t index = idxen ? w->vgpr[vaddr * LANES + lane] : 0;
    uint64_t offset = inst_offset + (offen ? (uint64_t)w->vgpr[(vaddr + (int)idxen) * LANES + lane] : 0);
    uint8_t *memory = (uint8_t *)(base + soffset + offset + stride * index);
    uint64_t unit = op->bytes < 4 ? (uint64_t)op->bytes : 4;
    if (to_lds) {
      uint64_t at = (w->sgpr[M0] & 0xffff) + inst_offset + (uint64_t)(lane * op->bytes);
      if (at + (uint64_t)op->bytes > w->lds_bytes) return BAD_LDS;
      for (uint64_t byte = 0; byte < (uint64_t)op->bytes; byte += unit) {
        int inside = stride ? index < records : offset + byte + unit + soffset <= records;
        if (inside) memcpy(w->lds + at + byte, memory + byte, unit);
        else memset(w->lds + at + byte, 0, unit);
      }
      continue;
    }
    for (uint64_t byte = 0; byte < (uint64_t)op->bytes; byte += unit) {
      int inside = stride ? index < records : offset + byte + unit + soffset <= records;
      uint32_t *reg = file + (vdata + (int)(byte / 4)) * LANES + lane, value = 0;
      if (op->store == 1) {
        value = op->half == 2 ? *reg >> 16 : *reg;
        if (inside) memcpy(memory + byte, &value, unit);
      } else if (op->store == 2) {
        uint32_t next = file[(vdata + 1) * LANES + lane];
        value = inside ? atomic((uint32_t *)(memory + byte), op->atomic, *reg, next) : 0;
        if (returns) *reg = value;
      } else {
        if (inside) memcpy(&value, memory + byte, unit);
        put_loaded(reg, op, value);
      }
    }
  }
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- global memory, at any address: the hardware takes every alignment, the emulator only that of words ---- */

typedef struct access {
  memory_op op;
  int32_t length; /* of the instruction, in bytes */
  int32_t lanes, addr, data;
  int32_t saddr; /* a scalar pair to which the 32-bit register `addr` is added; or -1: `addr` is a pair */
  int32_t offset, in_acc;
} access;

int tw_memory(wave *w, const access *x) {
  uint64_t exec = exec_of(w);
  uint32_t *file = x->in_acc ? w->acc : w->vgpr;
  size_t unit = x->op.bytes < 4 ? (size_t)x->op.bytes : 4;
  for (int lane = 0; lane < x->lanes; ++lane) {
    if (!(exec >> lane & 1)) continue;
    uint64_t at = w->vgpr[x->addr * x->lanes + lane];
    if (x->saddr >= 0) at += w->sgpr[x->saddr] | (uint64_t)w->sgpr[x->saddr + 1] << 32;
    else at |= (uint64_t)w->vgpr[(x->addr + 1) * x->lanes + lane] << 32;
    uint8_t *memory = (uint8_t *)(at + (uint64_t)(int64_t)x->offset);
    for (int byte = 0; byte < x->op.bytes; byte += 4) {
      uint32_t *reg = file + (x->data + byte / 4) * x->lanes + lane, value = 0;
      if (x->op.store) {
        value = x->op.half == 2 ? *reg >> 16 : *reg;
        memcpy(memory + byte, &value, unit);
      } else {
        memcpy(&value, memory + byte, unit);
        put_loaded(reg, &x->op, value);
      }
    }
  }
  set_pc(w, pc_of(w) + (uint64_t)x->length);
  return OK;
}

/* Global atomics: address from a register pair, or a scalar pair plus an offset register. */
int tw_global_atomic(wave *w, const memory_op *op) {
  uint64_t code = word(w, 0) | (uint64_t)word(w, 1) << 32, exec = exec_of(w);
  int64_t offset = (int64_t)(bits(code, 0, 13) ^ 0x1000) - 0x1000;
  int returns = (int)bits(code, 16, 1), addr = (int)bits(code, 32, 8), data = (int)bits(code, 40, 8);
  int saddr = (int)bits(code, 48, 7), in_acc = (int)bits(code, 55, 1), dst = (int)bits(code, 56, 8);
  int segment = (int)bits(code, 14, 2); /* 0 flat, 2 global */
  uint32_t *file = in_acc ? w->acc : w->vgpr;
  for (int lane = 0; lane < LANES; ++lane) {
    if (!(exec >> lane & 1)) continue;
    uint64_t base = w->vgpr[addr * LANES + lane];
    if (segment == 2 && saddr != 0x7f) base += w->sgpr[saddr] | (uint64_t)w->sgpr[saddr + 1] << 32;
    else base |= (uint64_t)w->vgpr[(addr + 1) * LANES + lane] << 32;
    if (op->bytes == 8) { /* a compare-and-swap of two words */
      uint64_t held, wanted = file[(data + 2) * LANES + lane] | (uint64_t)file[(data + 3) * LANES + lane] << 32;
      uint64_t next = file[data * LANES + lane] | (uint64_t)file[(data + 1) * LANES + lane] << 32;
      memcpy(&held, (void *)(base + (uint64_t)offset), 8);
      if (held == wanted) memcpy((void *)(base + (uint64_t)offset), &next, 8);
      if (returns) file[dst * LANES + lane] = (uint32_t)held, file[(dst + 1) * LANES + lane] = (uint32_t)(held >> 32);
      continue;
    }
    uint32_t old = atomic((uint32_t *)(base + (uint64_t)offset), op->atomic, file[data * LANES + lane],
                          op->atomic == CMPSWAP ? file[(data + 1) * LANES + lane] : 0);
    if (returns) file[dst * LANES + lane] = old;
  }
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- local memory: only active lanes have an address, and an access outside it is an error ---- */

typedef struct local_op {
  memory_op op;
  int32_t count; /* two accesses in one instruction, or one */
  int32_t step;  /* bytes of an offset's unit: of two accesses each has an offset of eight bits */
  int32_t lanes; /* of a wave; with 64 bit 25 says that the data are in accumulation registers */
} local_op;

int tw_local(wave *w, const local_op *x) {
  uint32_t low = word(w, 0), high = word(w, 1);
  int addr = (int)(high & 0xff), dst = (int)(high >> 24), bytes = x->op.bytes, words = bytes < 4 ? 1 : bytes / 4;
  uint32_t *file = x->lanes == LANES && (low >> 25 & 1) ? w->acc : w->vgpr;
  size_t unit = bytes < 4 ? (size_t)bytes : 4;
  uint64_t exec = exec_of(w);
  for (int lane = 0; lane < x->lanes; ++lane) {
    if (!(exec >> lane & 1)) continue;
    uint32_t base = w->vgpr[addr * x->lanes + lane]; /* may be below zero, and the offset bring it back */
    for (int i = 0; i < x->count; ++i) {
      uint64_t at = (uint32_t)(base + (x->count == 1 ? low & 0xffff : (low >> 8 * i & 0xff) * (uint32_t)x->step));
      if (at + (uint64_t)bytes > w->lds_bytes) return BAD_LDS;
      int first = x->op.store ? (int)(high >> (8 + 8 * i) & 0xff) : dst + i * words;
      for (int j = 0; j < words; ++j) {
        uint32_t *reg = file + (first + j) * x->lanes + lane, value = 0;
        if (x->op.store) {
          value = x->op.half == 2 ? *reg >> 16 : *reg;
          memcpy(w->lds + at + 4 * j, &value, unit);
        } else {
          memcpy(&value, w->lds + at + 4 * j, unit);
          put_loaded(reg, &x->op, value);
        }
      }
    }
  }
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- local memory read and turned ----
 * Sixteen lanes read eight bytes each, which together are a block of rows of 16 elements; each lane gets a column. */
int tw_read_transposed(wave *w, const int32_t *element_bytes) {
  uint32_t low = word(w, 0), high = word(w, 1), offset = low & 0xffff;
  int addr = (int)(high & 0xff), dst = (int)(high >> 24), size = *element_bytes, count = 8 / size, across = 16 / count;
  uint32_t *file = (low >> 25 & 1) ? w->acc : w->vgpr;
  uint8_t loaded[LANES][8], turned[LANES][8];
  for (int lane = 0; lane < LANES; ++lane) {
    uint64_t at = (uint64_t)w->vgpr[addr * LANES + lane] + offset;
    if (at + 8 > w->lds_bytes) return BAD_LDS;
    memcpy(loaded[lane], w->lds + at, 8);
  }
  for (int lane = 0; lane < LANES; ++lane)
    for (int j = 0; j < count; ++j) {
      int first = lane / 16 * 16, column = lane % 16;
      memcpy(turned[lane] + j * size, loaded[first + across * j + column / count] + column % count * size,
             (size_t)size);
    }
  for (int lane = 0; lane < LANES; ++lane)
    for (int half = 0; half < 2; ++half) memcpy(file + (dst + half) * LANES + lane, turned[lane] + 4 * half, 4);
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- registers of other lanes ----
 * ds_bpermute_b32 over all 64 lanes (those of RDNA, which the emulator knows, are 32): each lane names the lane it reads
 * by four times its number, and one that is switched off gives 0.  Local memory is not touched. */
int tw_bpermute(wave *w, const int32_t *unused) {
  uint32_t low = word(w, 0), high = word(w, 1), read[LANES];
  int addr = (int)(high & 0xff), data = (int)(high >> 8 & 0xff), dst = (int)(high >> 24);
  uint32_t *file = (low >> 25 & 1) ? w->acc : w->vgpr;
  uint64_t exec = exec_of(w);
  (void)unused;
  for (int lane = 0; lane < LANES; ++lane) {
    uint32_t from = (w->vgpr[addr * LANES + lane] + (low & 0xffff)) / 4 % LANES;
    read[lane] = exec >> from & 1 ? file[data * LANES + (int)from] : 0;
  }
  for (int lane = 0; lane < LANES; ++lane)
    if (exec >> lane & 1) file[dst * LANES + lane] = read[lane];
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* v_permlane32_swap_b32 and v_permlane16_swap_b32 of gfx950: of each pair of neighbouring rows of so many lanes, the upper
 * one of vdst and the lower one of the source change places.  Which of them lanes that are switched off give is not
 * modelled. */
int tw_swap_rows(wave *w, const int32_t *rows) {
  uint32_t code = word(w, 0);
  uint32_t *dst = w->vgpr + (code >> 17 & 0xff) * LANES, *src = w->vgpr + (code & 0xff) * LANES;
  if (exec_of(w) != ~0ull) return BAD_LANES;
  if (!(code >> 8 & 1)) return BAD_OPERAND;
  for (int lane = 0; lane < LANES; ++lane) {
    if (lane / *rows % 2) continue;
    uint32_t kept = src[lane];
    src[lane] = dst[lane + *rows], dst[lane + *rows] = kept;
  }
  set_pc(w, pc_of(w) + 4);
  return OK;
}

/* ---- two floats to 8 bits ----
 * v_cvt_pk_fp8_f32 and v_cvt_pk_bf8_f32 of gfx942, which has FNUZ floats (the emulator knows gfx950's): the half of the
 * result that op_sel names is written, the other stays. */
int tw_narrow(wave *w, const int32_t *type) {
  uint64_t code = word(w, 0) | (uint64_t)word(w, 1) << 32, exec = exec_of(w);
  int dst = (int)bits(code, 0, 8), high = (int)bits(code, 14, 1);
  for (int lane = 0; lane < LANES; ++lane) {
    uint32_t *to = &w->vgpr[dst * LANES + lane], both = 0;
    if (!(exec >> lane & 1)) continue;
    for (int i = 0; i < 2; ++i) {
      int src = (int)bits(code, 32 + 9 * i, 9);
      float f = as_float(src < 256 ? w->sgpr[src] : w->vgpr[(src - 256) * LANES + lane]);
      if (bits(code, 8 + i, 1)) f = fabsf(f);
      if (bits(code, 61 + i, 1)) f = -f;
      both |= rounded(f, *type) << 8 * i;
    }
    *to = high ? (*to & 0xffff) | both << 16 : (*to & 0xffff0000) | both;
  }
  set_pc(w, pc_of(w) + 8);
  return OK;
}

/* ---- program counter as data ---- */

enum { GETPC, SETPC, SWAPPC };

/* Nothing to do: there are no caches here whose lines could be old. */
int tw_skip(wave *w, const int32_t *bytes) {
  set_pc(w, pc_of(w) + (uint64_t)*bytes);
  return OK;
}

int tw_pc(wave *w, const int32_t *kind) {
  uint32_t code = word(w, 0);
  uint32_t src = code & 0xff, dst = code >> 16 & 0x7f;
  uint64_t next = pc_of(w) + 4, target = w->sgpr[src] | (uint64_t)w->sgpr[src + 1] << 32;
  if (*kind != SETPC) w->sgpr[dst] = (uint32_t)next, w->sgpr[dst + 1] = (uint32_t)(next >> 32);
  set_pc(w, *kind == GETPC ? next : target);
  return OK;
}

/* ---- the loop ----
 * `steps` has an entry for each word of the code; Python fills one when the loop first meets it. */

typedef struct step {
  int (*native)(wave *, const void *); /* one of the functions above, or null: then `compiled` */
  const void *data;
  void (*compiled)(void *, void *, void *, void *, void *, void *); /* made by the checkout's emulator */
  uint8_t argument_count, arguments[6];
  uint8_t barrier;
  uint64_t count; /* how often it was executed */
} step;

enum { QUANTUM = 0, ENDED = 1, BARRIER = 2, UNKNOWN = 3, OUTSIDE = 4, ERROR = 16 };

int tw_run(wave *w, void **buffers, step *steps, uint64_t base, uint64_t size, uint64_t quantum) {
  while (quantum--) {
    uint64_t pc = pc_of(w);
    if (pc == ~0ull) return ENDED;
    if (pc < base || pc >= base + size || pc % 4) return OUTSIDE;
    step *s = steps + (pc - base) / 4;
    if (s->native) {
      int code = s->native(w, s->data);
      if (code) return ERROR + code;
    } else if (s->compiled) {
      void *a[6] = {0};
      for (int i = 0; i < s->argument_count; ++i) a[i] = buffers[s->arguments[i]];
      s->compiled(a[0], a[1], a[2], a[3], a[4], a[5]); /* surplus arguments are ignored by the calling convention */
    } else {
      return UNKNOWN;
    }
    ++s->count;
    if (s->barrier) return BARRIER;
  }
  return QUANTUM;
}

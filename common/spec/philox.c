#include "common/spec/philox.h"

#include "common/spec/rowmath.h"

#define ROUNDS 10
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u /* golden ratio */
#define WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */
#define N (FT_PHILOX_UNIFORMS / 2)

static inline double unit(uint32_t low, uint32_t high) {
    uint64_t bits = (uint64_t)high << 32 | low;
    return (double)(bits >> 11) * 0x1p-53;
}

void ft_philox_block(uint64_t seed, uint64_t position, uint32_t purpose, uint32_t lane,
                     uint32_t out[4]) {
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)position, c1 = (uint32_t)(position >> 32);
    uint32_t c2 = purpose, c3 = lane;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t product_1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ key_0;
        c1 = (uint32_t)product_1;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ key_1;
        c3 = (uint32_t)product_0;
        key_0 += WEYL_0;
        key_1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

double ft_philox_uniform(uint64_t seed, uint64_t position, enum ft_philox_purpose purpose,
                         uint32_t lane) {
    uint32_t block[4];
    ft_philox_block(seed, position, (uint32_t)purpose, lane, block);
    return unit(block[0], block[1]);
}

/* The rounds of ft_philox_block over N lanes side by side, which the compiler vectorises. */
FT_ROWMATH_CLONED static void blocks(uint64_t seed, uint64_t position, uint32_t purpose,
                                     uint32_t first_lane, uint32_t out[4][N]) {
    uint32_t key_0 = (uint32_t)seed, key_1 = (uint32_t)(seed >> 32);
    uint32_t c0[N], c1[N], c2[N], c3[N];
    for (uint32_t j = 0; j < N; j++) {
        c0[j] = (uint32_t)position;
        c1[j] = (uint32_t)(position >> 32);
        c2[j] = purpose;
        c3[j] = first_lane + j;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t j = 0; j < N; j++) {
            uint64_t product_0 = (uint64_t)MULTIPLIER_0 * c0[j];
            uint64_t product_1 = (uint64_t)MULTIPLIER_1 * c2[j];
            c0[j] = (uint32_t)(product_1 >> 32) ^ c1[j] ^ key_0;
            c1[j] = (uint32_t)product_1;
            c2[j] = (uint32_t)(product_0 >> 32) ^ c3[j] ^ key_1;
            c3[j] = (uint32_t)product_0;
        }
        key_0 += WEYL_0;
        key_1 += WEYL_1;
    }
    for (uint32_t j = 0; j < N; j++) {
        out[0][j] = c0[j];
        out[1][j] = c1[j];
        out[2][j] = c2[j];
        out[3][j] = c3[j];
    }
}

void ft_philox_uniforms(uint64_t seed, uint64_t position, enum ft_philox_purpose purpose,
                        uint32_t first_lane, double out[FT_PHILOX_UNIFORMS]) {
    uint32_t words[4][N];
    blocks(seed, position, (uint32_t)purpose, first_lane, words);
    for (uint32_t j = 0; j < N; j++) {
        out[2 * j] = unit(words[0][j], words[1][j]);
        out[2 * j + 1] = unit(words[2][j], words[3][j]);
    }
}

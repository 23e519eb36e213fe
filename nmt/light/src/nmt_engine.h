/* The engine: translates with the model files that `nmt-export --format engine` writes.

   A model is read by any number of threads at once, and by the child of a process that forks meanwhile. Functions that
   can fail return null and write one line to `problem`, which has room for `room` bytes. Texts are UTF-8 with their sizes
   in bytes, and need not end with a 0. */

#ifndef NMT_ENGINE_H
#define NMT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define NMT_API __declspec(dllexport)
#elif defined(__GNUC__)
#define NMT_API __attribute__((visibility("default")))
#else
#define NMT_API
#endif

typedef struct nmt_model nmt_model;
typedef struct nmt_results nmt_results;
typedef struct nmt_glossary nmt_glossary;
typedef struct nmt_session nmt_session;

/* What a search does; begin with `nmt_defaults`. */
typedef struct {
    int32_t beam_size;         /* 1 to 1000 */
    int32_t beam_of_one;       /* with a beam_size of 1: beam search all the same, not greedy search */
    int32_t n_best;            /* 1 to beam_size */
    int32_t max_length_offset; /* tokens more than the source has, the end symbol counted in both */
    float max_length_factor;   /* times the tokens of the source */
    float length_penalty;
    int32_t length_normalization; /* 0: by ((5 + tokens) / 6) ^ length_penalty, 1: by tokens ^ length_penalty */
    int32_t threads;           /* 1 to 1024 */
    int32_t shortlist;         /* whether one is used, where the file has it */
    int32_t scores;            /* without them greedy search is faster, and scores are NaN */
    int32_t attention;         /* whether what tokens attend to is kept */
    int32_t split;             /* lines into sentences; 0: where the training text had one a line, 1: always, 2: never */
    int32_t capitals;          /* lines in capitals; 0: as they are, 1: by their small letters, and in capitals again */
    int32_t split_long;        /* sentences of more tokens are translated in parts; 0: none */
    float repeat_penalty;      /* divides the logits of tokens that a translation already has; 1: none */
    int32_t min_length;        /* tokens of a translation, the end symbol not counted; at most those of a source of one word */
    int32_t no_repeat_ngram;   /* no sequence of so many tokens occurs twice in a translation; 0: no limit */
    float coverage_penalty;    /* weight of the penalty for source tokens without attention; of beam search */
    int32_t target_language;   /* id of the source token of a language (nmt_language), put before each line; 0: none */
    int32_t sample;            /* n_best samples of each sentence, drawn word by word, in place of a beam or greedy search */
    float temperature;         /* of samples, as all below: logits are divided by it before a word is drawn */
    int32_t top_k;             /* draw among so many most probable words; 0: all */
    float top_p;               /* and of these among the fewest that have this probability together */
    int32_t seed;              /* the same line gets the same samples */
    int32_t placeholders;      /* of a source line are in its translation, unchanged; placed by the attention */
    int32_t replace_unknown;   /* words in the translation by the source words that they attend to most */
    int32_t entropies;         /* whether those of the tokens' distributions are computed */

    const nmt_glossary *glossary; /* terms that are translated in one way; null: none */

    /* Read before each step, unless null: another thread ends the call by a value other than 0. */
    const volatile int32_t *stop;
} nmt_options;

/* Opens one file, or several as an ensemble whose probabilities are averaged. `kernels` is the name of an instruction
   set, or null for the best one. A file is read whole, checked and not looked at again: it may then be exchanged, cut or
   removed. One that is being written at that moment is refused, like any damaged one. */
NMT_API nmt_model *nmt_open(const char *const *files, int32_t count, const char *kernels, char *problem, size_t room);

/* The same of a file that is in memory, at a multiple of 64 bytes. It must stay there, and nobody may change it, until the
   model is closed: what has been checked is not checked again. */
NMT_API nmt_model *nmt_open_memory(const void *bytes, size_t size, const char *kernels, char *problem, size_t room);

/* When no call that uses the model is under way; null will do, as for nmt_free. */
NMT_API void nmt_close(nmt_model *);

/* The settings of the (first) file. */
NMT_API nmt_options nmt_defaults(const nmt_model *);

/* The same options by their names, for languages that do not read this file: the bytes that they take, the defaults
   written there, the name of the i-th option, from 0 (null after the last one), its value (NaN for no such name), and a
   new value. Setting returns 0 with a line in `problem` for no such name and for a value that is not allowed. */
NMT_API size_t nmt_options_size(void);
NMT_API void nmt_options_begin(const nmt_model *, nmt_options *);
NMT_API const char *nmt_option_name(int32_t i);
NMT_API double nmt_option(const nmt_options *, const char *name);
NMT_API int32_t nmt_set_option(nmt_options *, const char *name, double value, char *problem, size_t room);
NMT_API void nmt_set_glossary(nmt_options *, const nmt_glossary *);
NMT_API void nmt_set_stop(nmt_options *, const volatile int32_t *stop);

/* A glossary for lines that this model, which stays open, translates: of lines of a term, a tab and its translation; blank
   ones and those that begin with # are left out. A term in small letters is found in any case, another one as it is spelled.
   A problem may begin with the number of a line, from 1: "line 3: ". Any number of calls use it at once, and its results
   without it. */
NMT_API nmt_glossary *nmt_glossary_open(const nmt_model *, const char *lines, size_t size, char *problem, size_t room);
NMT_API void nmt_glossary_close(nmt_glossary *);

/* The name of the instruction set that it computes with. */
NMT_API const char *nmt_kernels(const nmt_model *);

/* The model card of a file, a JSON object; null if the file has none, or if there is no such file. `number` is the
   place of the file among those that were opened together, from 0. */
NMT_API const char *nmt_card(const nmt_model *, int32_t number, size_t *size);

/* The id of the source token of the i-th target language, from 0, a piece such as `>>deu<<`; 0 after the last one. A model
   that has any needs one for each line: that of the options, or one that the line begins with, which comes first. */
NMT_API int32_t nmt_language(const nmt_model *, int32_t i);

/* Translates lines of at most 2^28 bytes each. Each depends on itself alone. */
NMT_API nmt_results *nmt_translate(nmt_model *, const char *const *lines, const size_t *sizes, size_t count,
                                   const nmt_options *, char *problem, size_t room);

/* A line, and what is asked for its translation; what is null or empty asks for nothing. Of a forbidden phrase nmt-light and
   nmt-translate also give the spellings with its first letter in the other case, and with its letters composed and
   decomposed. */
typedef struct {
    const char *text;
    size_t size;
    const char *prefix; /* that it begins with; with white space at its end, its last word is complete */
    size_t prefix_size;
    const char *forbidden; /* phrases that do not occur in it as words or sequences of words, one a line, as they are spelled */
    size_t forbidden_size;
} nmt_request;

/* nmt_translate of requests; null also for what no translation can keep to: a forbidden phrase in the prefix. Then
   `problem` begins with the number of the request, from 0: "line 3: ". */
NMT_API nmt_results *nmt_translate_requests(nmt_model *, const nmt_request *, size_t count, const nmt_options *,
                                            char *problem, size_t room);

/* How probable given translations are: results for nmt_ids and nmt_log_probs, of one part each. An empty side is the end
   symbol alone. Of the options only the threads count. */
NMT_API nmt_results *nmt_score_pairs(nmt_model *, const char *const *sources, const size_t *source_sizes,
                                     const char *const *targets, const size_t *target_sizes, size_t count,
                                     const nmt_options *, char *problem, size_t room);

/* Only cuts lines into the parts that would be translated, for nmt_parts, nmt_sentences and nmt_source_ids alone. */
NMT_API nmt_results *nmt_cut(nmt_model *, const char *const *lines, const size_t *sizes, size_t count,
                             const nmt_options *, char *problem, size_t room);

/* The same of sentences in ids, without their end symbols, in any language. */
NMT_API nmt_results *nmt_translate_ids(nmt_model *, const int32_t *const *ids, const size_t *lengths, size_t count,
                                       const nmt_options *, char *problem, size_t room);

/* Live translation, of text that grows: `how` is a policy and, after a comma, its option, as in `wait_k,wait=3`,
   `local_agreement,agree=2` or `alignatt,unread=2` (docs/live.md); without the option it is that. With `options`, which may
   be null, and of models that read ahead the open sentence is translated anew for each word; else, with wait_k, no word is
   encoded twice. A model has any number of sessions at once, which are closed before it is; each is used by one thread at a
   time. */
NMT_API nmt_session *nmt_live_open(nmt_model *, const char *how, const nmt_options *options, char *problem, size_t room);

/* More of the text, in pieces of any bytes: a word is read when white space follows it. Returns what is new of the
   translation, often nothing, valid until the next call; it never changes. Null in an error, after which the session has
   ended. */
NMT_API const char *nmt_live_feed(nmt_session *, const char *text, size_t size, size_t *written, char *problem, size_t room);

/* The rest of the translation. */
NMT_API const char *nmt_live_end(nmt_session *, size_t *written, char *problem, size_t room);

/* What may follow what has been returned, but may still change; empty where a policy has no such text. */
NMT_API const char *nmt_live_tail(const nmt_session *, size_t *size);

/* Words of the sentence at hand. */
NMT_API size_t nmt_live_words(const nmt_session *);

/* At any time; null will do. */
NMT_API void nmt_live_close(nmt_session *);

NMT_API void nmt_free(nmt_results *);

/* How many translations a line has: at least one. */
NMT_API size_t nmt_count(const nmt_results *, size_t line);

/* Of the i-th best translation of a line its text, null where ids were translated, and its score: the log-probability
   divided as length_normalization says, of a line in parts their sum; -infinity where the model gives no finite one. */
NMT_API const char *nmt_text(const nmt_results *, size_t line, size_t i, size_t *size);
NMT_API float nmt_score(const nmt_results *, size_t line, size_t i);

/* All best translations, each ended by a line feed. */
NMT_API const char *nmt_lines(const nmt_results *, size_t *size);

enum { NMT_CUT = 1, NMT_NOT_FINITE = 2, NMT_SEVERAL = 4, NMT_CAPITALS = 8 };

/* Facts about a line: whether its best translation was cut by the length limit, whether there is none, and whether the
   line has several sentences but was translated as a whole, since its file does not say what the model was trained on. */
NMT_API int32_t nmt_flags(const nmt_results *, size_t line);

/* In how many parts a line was translated: 0 if it is empty. They are its sentences, where it was split into these, or
   parts of what was too long. */
NMT_API size_t nmt_parts(const nmt_results *, size_t line);

/* How many sentences, or lines, these parts belong to: fewer than there are parts where one was too long. */
NMT_API size_t nmt_sentences(const nmt_results *, size_t line);

/* Tokens of the source that are not in the vocabulary, placeholders not counted. */
NMT_API size_t nmt_unknown(const nmt_results *, size_t line);

/* Tokens of the source of a part, the end symbol counted. */
NMT_API const int32_t *nmt_source_ids(const nmt_results *, size_t line, size_t part, size_t *count);

/* Tokens of a translation of a part, the end symbol counted where it has one, and the log-probability of each. */
NMT_API const int32_t *nmt_ids(const nmt_results *, size_t line, size_t i, size_t part, size_t *count);
NMT_API const float *nmt_log_probs(const nmt_results *, size_t line, size_t i, size_t part);

/* Where they were asked for, the entropy in nats of the distribution that each of these tokens is from. */
NMT_API const float *nmt_entropies(const nmt_results *, size_t line, size_t i, size_t part);

/* Where it was asked for, [tokens of the translation][tokens of the source], each row adding up to 1. */
NMT_API const float *nmt_attention(const nmt_results *, size_t line, size_t i, size_t part);

/* Where attention was asked for, pairs of a word of the line and one of the i-th best translation, both from 0: white space
   separates words; null where there is no text. */
NMT_API const int32_t *nmt_alignment(const nmt_results *, size_t line, size_t i, size_t *pairs);

/* Sentences of a text: how many there are, and of the first `room` of them begin and end, in bytes, without the white
   space around them. `language` is a code such as `de` or `pt-BR`; for null, or one that is not known, words of all
   languages count. `abbreviations`: further ones, one a line; may be null. */
NMT_API size_t nmt_split(const char *text, size_t size, const char *language, const char *abbreviations, size_t *spans,
                         size_t room);

/* How many lines of a text, which line feeds end, have several sentences. */
NMT_API size_t nmt_several(const char *text, size_t size, const char *language);

/* Whether lines are split into sentences by default, where this share of the training sources has several; whether a
   language has spaces between sentences. */
NMT_API int32_t nmt_splits(double share);
NMT_API int32_t nmt_is_spaced(const char *language);

/* The piece of a token of the source or the target vocabulary, which does not end with a 0; null if there is none. */
NMT_API const char *nmt_piece(const nmt_model *, int32_t target, int32_t id, size_t *size);

#endif

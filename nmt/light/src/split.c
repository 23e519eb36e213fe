/* See split.h. A sentence ends at a mark, which other marks and closing quotes and brackets may follow. What decides are
   the mark, the word before it and the beginning of what follows; how far these are looked at is limited. */

#include "split.h"

#include <string.h>

#include "nmt_engine.h"

/* Words that say whether a full stop ends a sentence, by language. A word is an abbreviation as it stands; `#` behind it:
   only before a number; `~` before it: any word that ends so; `+`: a sentence ends there if what follows is one of the
   words that begin sentences. Words that begin sentences: pronouns, articles, conjunctions, adverbs, which have no capital
   within a sentence. */
typedef struct language_words {
    const char *language;
    int ordinals; /* whether a number with a full stop is an ordinal */
    const char *abbreviations, *beginnings;
} language_words;

static const language_words LANGUAGES[] = {
    {"en", 0,
     " Mr Mrs Ms Messrs Mx Dr Drs Prof Rev Hon St Ste Mt Ft Gen Col Maj Capt Cpt Lt Sgt Cpl Pvt Adm Cmdr Gov Pres Sen Rep"
     " Supt Insp Det Fr Br vs cf approx e.g i.e viz al ca resp incl excl esp Jr+ Sr+ Inc+ Ltd+ Co+ Corp+ Bros+ Dept+ Univ+"
     " Ave+ Blvd+ Rd+ Est+ a.m+ p.m+ U.S+ U.K+ U.N+ U.S.A+ E.U+ D.C+ B.C+ A.D+ Ph.D+ M.D+ B.A+ M.A+ No# no# Nos# nos# Art#"
     " art# Sec# sec# Ch# ch# Fig# fig# Figs# figs# Eq# eq# Vol# vol# pp# p# Jan# Feb# Mar# Apr# Jun# Jul# Aug# Sep# Sept#"
     " Oct# Nov# Dec# ",
     " The A An I He She It We You They This That These Those There Here My Your His Her Its Our Their But And Or So If When"
     " While As At In On By For From With After Before Then Now Not No Yes What Who Where Why How Which Is Are Was Were Do"
     " Does Did Can Could Will Would Should Have Has Had Let Please However Although Because Since Once All Some Many Most"
     " Both Each Every One Two Three Another Other Such To Of Nobody Everyone Someone Today Tomorrow Yesterday Later Soon "},
    {"de", 1,
     " Hr Hrn Fr Frl Dr Drs Prof Ing Dipl Mag Dir Hptm Maj Gen Fa Fam Gebr Bez mult em ggü St Sr Jr Nr Str ~str bzw ca vgl z.B z.b d.h u.a u.U i.d.R o.ä s.o"
     " s.u v.a v.Chr+ n.Chr+ z.T z.Z z.Zt zzgl inkl exkl evtl ggf sog geb gest verh gegr jmd jdm jdn insb insbes einschl"
     " allg bes etc+ usw+ usf+ Co+ Abb Abs Abschn Abt Anm Art Aufl Bd Bde Ev Jh Jhd Kap Mio Mrd Mo Di Mi Do Sa Tel Tab Ziff"
     " Ziffer# S# § Jan Feb Mrz Apr Jun Jul Aug Sep Sept Okt Nov Dez lt max+ min+ mind Std Sek Tsd mtl tgl wiss röm griech"
     " lat engl frz dt hl Hl phil+ med jur rer nat ",
     " Der Die Das Ein Eine Einen Einem Einer Ich Er Sie Es Wir Ihr Du Man Dies Diese Dieser Dieses Mein Meine Dein Sein Seine"
     " Ihre Unser Und Aber Oder Doch Denn Wenn Als Weil Da Dann Dort Hier Nun Jetzt Heute Morgen Gestern Was Wer Wo Wie Warum"
     " Wann Welche Ist Sind War Hat Haben Kann Im In Am An Auf Aus Bei Mit Nach Von Vor Zu Zum Zur Für Durch Über Unter Seit"
     " Bis Trotz Nicht Kein Keine Ja Nein Bitte Auch So Schon Noch Nur Alle Viele Jeder Jede Jemand Niemand Den Dem Des Dazu"
     " Danach Deshalb Daher Trotzdem Jedoch Später Bald Er's Sie's Ob Dass Damit Zwei Drei Vielleicht "},
    {"fr", 0,
     " M MM Mme Mmes Mlle Mlles Me Mgr dr Pr prof gén boul tél réf adj St Ste cf ex env av apr p.ex c.-à-d éd chap coll vol#"
     " fig# art# n# p# pp# no# janv# févr# avr# juil# sept# oct# nov# déc# J.-C+ etc+ ",
     " Le La Les L'un Un Une Des Du De Je Tu Il Elle On Nous Vous Ils Elles Ce Cet Cette Ces C'est C'était Mon Ma Mes Ton Ta Tes"
     " Son Sa Ses Notre Nos Votre Vos Leur Leurs Et Mais Ou Or Donc Car Si Quand Comme Lorsque Que Qui Quoi Où Pourquoi Comment"
     " Dans En À Au Aux Avec Sans Sous Sur Pour Par Après Avant Puis Alors Ensuite Ne Pas Non Oui Tout Tous Toutes J'ai Il y"
     " Aujourd'hui Demain Hier Ici Là Cela Ça "},
    {"es", 0,
     " sr sra srta sres sras dr dra dres prof profa lic ing arq D Dña Dn Ud Uds Vd Vds gral cap mons Sto Sta p.ej ej aprox ca cf av"
     " avda EE UU+ JJ OO+ AA+ cía+ núm# nº# pág# págs# art# vol# fig# tel etc+ EE.UU+ S.A+ a.C+ d.C+ a.m+ p.m+ ",
     " El La Los Las Un Una Unos Unas Yo Tú Él Ella Nosotros Ellos Ellas Usted Ustedes Este Esta Esto Ese Esa Eso Estos Estas Mi"
     " Tu Su Mis Tus Sus Nuestro Y Pero O Si Cuando Como Porque Aunque Que Quién Quien Qué Dónde Cómo Cuándo En De Con Sin Por"
     " Para A Al Del Desde Hasta Sobre Después Antes Luego Entonces Ahora Hoy Mañana Ayer Aquí Allí No Sí Ya También Todo Todos"
     " Hay Es Era Está Se Me Te Le Nos Lo "},
    {"it", 0,
     " sig sigg sig.ra sig.na dott dott.ssa dr prof avv ing geom rag arch on mons gen col card egr spett sec cap Don S p.es es ecc+ ca cfr pag# pagg# art# vol# fig# n# nn#"
     " tel a.C+ d.C+ S.p.A+ S.r.l+ ",
     " Il Lo La I Gli Le Un Uno Una Io Tu Lui Lei Noi Voi Loro Egli Ella Questo Questa Quello Quella Questi Mio Mia Tuo Tua Suo Sua"
     " Nostro E Ma O Se Quando Come Perché Che Chi Cosa Dove In Di Da Con Su Per Tra Fra A Al Nel Nella Del Della Dopo Prima Poi"
     " Allora Ora Oggi Domani Ieri Qui Lì Non No Sì Già Anche Tutto Tutti È Era Sono Ho Ha Si Mi Ti Ci Vi C'è "},
    {"pt", 0,
     " sr sra srta srs sras dr dra drs prof profa eng gen séc cia+ Exmo Exma D V.Exa p.ex ex aprox ca cf av tel núm# nº# pág# págs# art# vol#"
     " fig# etc+ S.A+ Ltda+ a.C+ d.C+ ",
     " O A Os As Um Uma Uns Umas Eu Tu Ele Ela Nós Vós Eles Elas Você Vocês Este Esta Isto Esse Essa Isso Aquele Aquela Meu Minha"
     " Teu Tua Seu Sua Nosso E Mas Ou Se Quando Como Porque Embora Que Quem Onde Em De Com Sem Por Para Ao À Do Da No Na Nos Nas"
     " Depois Antes Então Agora Hoje Amanhã Ontem Aqui Ali Não Sim Já Também Todo Todos Há É Era Está "},
    {"nl", 0,
     " dhr mevr mw dr drs prof ir ing mr ds jhr fa gen burg jan# febr# aug# sept# okt# nov# dec# St ca bijv bv d.w.z o.a m.b.t i.p.v t.a.v a.u.b resp incl excl"
     " vgl afb# blz# nr# Nr# art# tel enz+ etc+ jl+ n.Chr+ v.Chr+ ",
     " De Het Een Ik Jij Je Hij Zij Ze Wij We Jullie Zij U Dit Dat Deze Die Mijn Jouw Zijn Haar Ons Onze Hun En Maar Of Als Toen Omdat"
     " Want Hoewel Wat Wie Waar Hoe Waarom Wanneer In Op Aan Bij Met Zonder Voor Na Van Naar Over Onder Tot Dan Nu Vandaag Morgen"
     " Gisteren Hier Daar Er Niet Geen Nee Ja Ook Al Alle Is Was Heeft Kan Om Door Uit "},
    {"cs", 1,
     " pan p pí sl ing Mgr Bc MUDr JUDr PhDr RNDr dr prof doc sv st ml gen plk kpt např apod+ atd+ tj tzn tzv resp cca"
     " popř příp viz obr# str# č# čl# odst# tab# kap# mj aj+ r# ul nám tel tis mil min hod Kč+ n.l+ př.n.l+ ",
     " Ten Ta To Ti Ty Já On Ona Ono My Vy Oni Tento Tato Toto Můj Moje Tvůj Jeho Její Náš Váš Jejich A Ale Nebo Když Protože Že Aby Jestli"
     " Co Kdo Kde Kdy Jak Proč Který V Ve Na Do Z Ze S Se K Ke O Po Pro Před Za Od U Při Potom Pak Teď Dnes Zítra Včera Tady Tam Ne Ano"
     " Už Také Všichni Všechno Je Byl Byla Bylo Jsem Jsou Má Mám Není "},
    {"pl", 1,
     " p pp dr hab inż mgr prof mec ks św o gen płk kpt red im ul al pl np itd+ itp+ tj tzn tzw m.in ok# ds wg ww r+ w+ zob por"
     " godz# min sek str# s# nr# Nr# art# ust# pkt# rys# tab# tel tys mln mld zł+ n.e+ p.n.e+ ",
     " Ten Ta To Ci Te Ja On Ona Ono My Wy Oni One Mój Moja Twój Jego Jej Nasz Wasz Ich I Ale Albo Lub Gdy Kiedy Ponieważ Że Żeby Czy Jeśli"
     " Co Kto Gdzie Jak Dlaczego Który W We Na Do Z Ze O Po Przed Za Od U Przy Dla Potem Wtedy Teraz Dziś Dzisiaj Jutro Wczoraj Tutaj Tu"
     " Tam Nie Tak Już Też Także Wszyscy Wszystko Jest Był Była Było Są Mam Ma Jestem Pan Pani "},
    {"ru", 0,
     " гг ул пр просп пер пл пос кв корп стр рис# табл# гл# ст# п# пп# с# см ср напр т.е т.к т.н т.д+ т.п+ др+ пр+ руб+ коп+ тыс млн млрд"
     " им акад проф доц инж ген полк кап кн св тел обл р н.э+ ок# до мин сек час г-н г-жа ",
     " Он Она Оно Они Я Ты Мы Вы Это Этот Эта Эти Тот Та Те То Мой Моя Твой Его Её Ее Наш Ваш Их И А Но Или Если Когда Потому Хотя Что Кто Где"
     " Как Почему Зачем Какой В Во На До Из С Со К Ко О Об По При Для Перед За От У После Потом Затем Теперь Сейчас Сегодня Завтра Вчера"
     " Здесь Там Тут Не Нет Да Уже Также Все Всё Есть Был Была Было Были Однако Поэтому "},
    {"uk", 0,
     " рр вул пр просп пров пл буд кв корп стор# рис# табл# гл# ст+ п# пп# див пор напр т.зв т.д+ т.п+ ін+ грн+ коп+ тис млн млрд"
     " ім акад проф доц інж ген полк св тел обл н.е+ хв сек год ",
     " Він Вона Воно Вони Я Ти Ми Ви Це Цей Ця Ці Той Та Те Ті Мій Моя Твій Його Її Наш Ваш Їх І Й А Але Або Якщо Коли Бо Хоча Що Хто Де Як Чому"
     " Який У В На До З Із Зі О Об По При Для Перед За Від Після Потім Тоді Тепер Зараз Сьогодні Завтра Вчора Тут Там Не Ні Так Вже Також"
     " Усі Всі Все Є Був Була Було Були Однак Тому "},
    {"ar", 0, " د أ أ.د م ص.ب ت ق.م+ هـ+ م+ ", " "},
    {"hi", 0, " डॉ श्री प्रो पं कु सु रु ई पू ", " "},
};

enum { LONGEST_WORD = 64, LONGEST_QUOTE = 400, LONGEST_VIEW = 1000 }; /* bytes that are looked at */

typedef enum { NO_MARK, STOP, DOTS, STRONG, FOREIGN, WIDE } mark;

/* As read from a position: the character and where the next one begins; 0 at the end. */
typedef struct {
    uint32_t c;
    size_t next;
} letter;

uint32_t character_at(const char *at, const char *end, int *bytes) {
    const unsigned char *p = (const unsigned char *)at;
    *bytes = 1;
    if (p[0] < 0x80) return p[0];
    int more = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : p[0] >= 0xc0 ? 1 : 0;
    if (!more || end - at <= more) return 0xfffd;
    uint32_t c = p[0] & (0x3fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0xfffd;
        c = c << 6 | (p[i] & 0x3f);
    }
    *bytes = more + 1;
    return c;
}

bool is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static letter read(const splitting *s, size_t at) {
    if (at >= s->size) return (letter){0, at};
    int bytes;
    uint32_t c = character_at(s->text + at, s->text + s->size, &bytes);
    return (letter){c, at + (size_t)bytes};
}

/* The character that ends at a position, and where it begins; 0 before the text. */
static letter read_back(const splitting *s, size_t at) {
    if (!at) return (letter){0, 0};
    size_t begin = at - 1;
    while (begin && at - begin < 4 && ((unsigned char)s->text[begin] & 0xc0) == 0x80) begin--;
    letter found = read(s, begin);
    return found.next == at ? (letter){found.c, begin} : (letter){0xfffd, at - 1};
}

static bool is_one_of(uint32_t c, const uint32_t *set) {
    for (; *set; set++)
        if (*set == c) return true;
    return false;
}

static bool is_digit(uint32_t c) {
    return (c >= '0' && c <= '9') || (c >= 0x660 && c <= 0x669) || (c >= 0x6f0 && c <= 0x6f9) ||
           (c >= 0x966 && c <= 0x96f) || (c >= 0xff10 && c <= 0xff19);
}

/* Capitals and small letters of Latin, Greek, Cyrillic and Armenian letters. */
static bool is_upper(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    if (c < 0x100) return c >= 0xc0 && c <= 0xde && c != 0xd7;
    if (c < 0x138 || (c > 0x148 && c < 0x178) || (c >= 0x1e00 && c < 0x1f00)) return !(c & 1);
    if (c < 0x149 || (c >= 0x179 && c < 0x17f)) return c & 1;
    if (c == 0x178) return true;
    if (c < 0x250) return (c < 0x1dd || c >= 0x1de) && ((c >= 0x1cd && c < 0x1dd) ? (c & 1) : !(c & 1));
    if (c >= 0x386 && c < 0x3ac) return c != 0x387 && c != 0x390;
    if (c >= 0x400 && c < 0x430) return true;
    if ((c >= 0x460 && c < 0x482) || (c >= 0x48a && c < 0x4c0) || (c >= 0x4d0 && c < 0x530)) return !(c & 1);
    return c >= 0x531 && c <= 0x556;
}

static bool is_lower(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z';
    if (c < 0x100) return (c >= 0xdf && c != 0xf7) || c == 0xb5 || c == 0xaa || c == 0xba;
    if (c < 0x250 || (c >= 0x1e00 && c < 0x1f00)) return !is_upper(c);
    if (c >= 0x250 && c < 0x2b0) return true;
    if (c >= 0x3ac && c < 0x3cf) return true;
    if (c >= 0x430 && c < 0x460) return true;
    if ((c >= 0x460 && c < 0x482) || (c >= 0x48a && c < 0x530)) return !is_upper(c);
    return c >= 0x561 && c <= 0x587;
}

static uint32_t small_of(uint32_t c) { /* of a capital */
    if (!is_upper(c)) return c;
    if (c >= 0x400 && c < 0x410) return c + 80;
    return c + (c >= 0x531 ? 48 : c < 0x100 || (c >= 0x386 && c < 0x460) ? 32 : 1);
}

static bool is_symbol(uint32_t c) { /* pictures, arrows, and what joins and colours pictures */
    return (c >= 0x2190 && c < 0x2c00) || (c >= 0x1f000 && c < 0x1fc00) || (c >= 0xfe00 && c <= 0xfe0f) || c == 0x200d ||
           (c >= 0xe0020 && c < 0xe0080);
}

/* A letter of a script without capitals. */
static bool is_caseless(uint32_t c) {
    if (c < 0x370 || is_upper(c) || is_lower(c) || is_digit(c) || is_space(c) || is_symbol(c) || c == 0xfffd) return false;
    if (c >= 0x2000 && c < 0x2c00) return false;
    if (c >= 0x3000 && c < 0x3040) return c >= 0x3005 && c <= 0x3007;
    if (c >= 0xfe10 && c < 0xff66) return c >= 0xfe70 && c < 0xff00 && c != 0xfeff;
    if ((c >= 0xe000 && c < 0xf900) || (c >= 0xffe0 && c < 0x10000)) return false; /* private ones stand for placeholders */
    static const uint32_t MARKS[] = {0x37e, 0x387, 0x55a, 0x55b, 0x55c, 0x55d, 0x55e, 0x55f, 0x589, 0x5be, 0x60c, 0x60d, 0x61b,
                                     0x61e, 0x61f, 0x66a, 0x66b, 0x66c, 0x66d, 0x6d4, 0x964, 0x965, 0x970, 0x104a, 0x104b,
                                     0x1361, 0x1362, 0x1367, 0x17d4, 0x17d5, 0x30a0, 0x30fb, 0};
    return !is_one_of(c, MARKS);
}

static bool is_cjk(uint32_t c) { /* without spaces between words */
    return (c >= 0x3040 && c < 0x3100 && c != 0x30fb) || (c >= 0x3400 && c < 0xa000) || (c >= 0xf900 && c < 0xfb00) ||
           (c >= 0x20000 && c < 0x32000) || (c >= 0x3005 && c <= 0x3007);
}

static bool is_letter(uint32_t c) { return is_upper(c) || is_lower(c) || is_caseless(c); }
static bool is_word(uint32_t c) { return is_letter(c) || is_digit(c); }

static mark mark_of(uint32_t c) {
    static const uint32_t STRONG_MARKS[] = {'!', '?', 0x203c, 0x203d, 0x2047, 0x2048, 0x2049, 0};
    static const uint32_t FOREIGN_MARKS[] = {0x61f, 0x6d4, 0x964, 0x965, 0x589, 0x1362, 0x1367, 0x17d4, 0x17d5, 0x104b, 0};
    static const uint32_t WIDE_MARKS[] = {0x3002, 0xff01, 0xff1f, 0xff61, 0xff0e, 0};
    if (c == '.') return STOP;
    if (c == 0x2026) return DOTS;
    if (c < 0x80 || (c >= 0x2000 && c < 0x2100)) return is_one_of(c, STRONG_MARKS) ? STRONG : NO_MARK;
    return is_one_of(c, FOREIGN_MARKS) ? FOREIGN : is_one_of(c, WIDE_MARKS) ? WIDE : NO_MARK;
}

static const uint32_t CLOSING[] = {'"',    '\'',   ')',    ']',    '}',    0xbb,   0xab,   0x201d, 0x2019, 0x201c, 0x2018, 0x203a,
                                   0x2039, 0x300d, 0x300f, 0x3011, 0x3009, 0x300b, 0xff09, 0xff3d, 0xff63, '*',    0x2033, 0};
bool ends_sentence(uint32_t c) { return mark_of(c) != NO_MARK; }
bool closes_sentence(uint32_t c) { return is_one_of(c, CLOSING); }

static const uint32_t OPENING[] = {'"',    '\'',   '(',    '[',    '{',    0xbb,   0xab,   0x201d, 0x2019, 0x201c, 0x2018, 0x201e,
                                   0x201a, 0x203a, 0x2039, 0x300c, 0x300e, 0x3010, 0x3008, 0x300a, 0xff08, 0xff3b, 0xff62, '-',
                                   0x2013, 0x2014, 0x2015, '*',    0x2022, 0xb7,   '#',    0xbf,   0xa1,   '_',    0};
static const uint32_t BREAKS[] = {'"', '\'', '(', '[', '{', '<', '>', '/', '-', 0xbb, 0xab, 0x2019, 0x2018, 0x201c, 0x201d, 0x201e,
                                  0x201a, 0x2013, 0x2014, 0xbf, 0xa1, 0xff08, 0x300c, '*', '_', '+', '=', ':', ',', ';', 0};

static size_t after_spaces(const splitting *s, size_t at) {
    for (letter l; is_space((l = read(s, at)).c);) at = l.next;
    return at;
}

/* Behind a tag of HTML that begins at `at`, or `at`. */
static size_t after_tag(const splitting *s, size_t at) {
    if (at + 2 >= s->size || s->text[at] != '<') return at;
    uint32_t c = read(s, s->text[at + 1] == '/' ? at + 2 : at + 1).c;
    if (!(is_upper(c) || is_lower(c)) || c > 127) return at;
    for (size_t end = at + 1; end < s->size && end < at + LONGEST_QUOTE; end++) {
        if (s->text[end] == '>') return end + 1;
        if (s->text[end] == '<') break;
    }
    return at;
}

/* Whether the list, whose words are between spaces, has a word; `sign` is what stands behind it there. Letters are
   compared without regard to case if all of the text is in capitals. */
static bool has_entry(const splitting *s, const char *list, size_t begin, size_t end, char *sign) {
    size_t size = end - begin;
    const char *word = s->text + begin;
    if (!size || !list) return false;
    for (const char *p = list; *p;) {
        while (*p == ' ' || *p == '\n') p++;
        size_t own = strcspn(p, " \n");
        char last = own ? p[own - 1] : 0;
        size_t bare = own > 1 && (last == '#' || last == '+') ? own - 1 : own;
        bool same = bare == size;
        if (*p == '~' && size >= bare) { /* any word that ends so */
            if (!memcmp(word + size - (bare - 1), p + 1, bare - 1)) return *sign = bare < own ? last : 0, true;
            same = false;
        }
        for (size_t i = 0; same && i < size;) {
            int bytes, its;
            uint32_t a = character_at(p + i, p + bare, &bytes), b = character_at(word + i, word + size, &its);
            bool any = s->all_capitals || (!i && is_lower(a)); /* at the beginning of a sentence it has a capital */
            same = bytes == its && (any ? small_of(a) == small_of(b) : a == b);
            i += (size_t)bytes;
        }
        if (same) return *sign = bare < own ? last : 0, true;
        p += own;
    }
    return false;
}

static bool is_beginning(const splitting *s, size_t at) {
    size_t end = at;
    char sign;
    for (letter l; end - at < LONGEST_WORD && (is_letter((l = read(s, end)).c) || l.c == '\'' || l.c == 0x2019);) end = l.next;
    if (end == read(s, at).next && read(s, end).c == '.') return false; /* an initial: Smith J. A. */
    for (int i = 0; i < s->rules->count; i++)
        if (has_entry(s, s->rules->words[i].beginnings, at, end, &sign)) return true;
    /* J'ai, I'm, l'été: the part before the apostrophe */
    size_t part = at;
    for (letter l; part < end && is_letter((l = read(s, part)).c);) part = l.next;
    for (int i = 0; part < end && i < s->rules->count; i++)
        if (has_entry(s, s->rules->words[i].beginnings, at, part, &sign)) return true;
    return false;
}

/* Of the caller's abbreviations each has a line; a full stop at its end does not count. */
static bool is_own(const splitting *s, size_t begin, size_t end) {
    const char *p = s->rules->more;
    size_t size = end - begin;
    while (p && *p) {
        size_t own = strcspn(p, "\n"), bare = own && p[own - 1] == '.' ? own - 1 : own;
        if (bare == size && size && !memcmp(p, s->text + begin, size)) return true;
        p += own + (p[own] == '\n');
    }
    return false;
}

typedef struct {
    size_t begin, end;
    int letters, digits, stops, others; /* stops: within it */
    bool roman, has_vowel, is_ascii, is_first;
} word;

/* The word that a full stop at `end` follows; `from`: where the sentence begins. */
static word word_before(const splitting *s, size_t from, size_t end) {
    word w = {.begin = end, .end = end, .roman = true, .is_ascii = true};
    while (w.begin > from && end - w.begin < LONGEST_WORD) {
        letter l = read_back(s, w.begin);
        if (is_space(l.c) || is_one_of(l.c, BREAKS) || (is_cjk(l.c) && w.is_ascii && w.begin < end)) break;
        w.begin = l.next;
        w.letters += is_letter(l.c), w.digits += is_digit(l.c), w.stops += l.c == '.';
        w.others += !is_word(l.c) && l.c != '.';
        w.roman = w.roman && l.c < 128 && strchr("IVXLC", (int)l.c) != NULL;
        w.is_ascii = w.is_ascii && l.c < 128;
        w.has_vowel = w.has_vowel || (l.c < 128 && strchr("aeiouyAEIOUY", (int)l.c) != NULL);
    }
    size_t at = w.begin;
    for (letter l; at > from && !is_word((l = read_back(s, at)).c) && w.begin - at < 16;) at = l.next;
    w.is_first = at <= from;
    return w;
}

/* Whether an initial or the like stands before a word: the character before the space before it is a full stop. */
static bool follows_stop(const splitting *s, size_t from, size_t begin) {
    while (begin > from) {
        letter l = read_back(s, begin);
        if (!is_space(l.c)) return l.c == '.';
        begin = l.next;
    }
    return false;
}

/* Whether a sentence ends at a full stop at `dot`, behind which white space and what begins at `next` with `c` follow. */
static bool stop_ends(const splitting *s, size_t from, size_t dot, size_t next, uint32_t c) {
    const split_rules *r = s->rules;
    word w = word_before(s, from, dot);
    char sign = 0;
    if (w.begin == w.end) { /* text in tokens, or behind a quote or bracket */
        letter before = read_back(s, dot);
        return is_space(before.c) || is_one_of(before.c, CLOSING) ? !is_lower(c) || is_space(before.c) : !is_lower(c);
    }
    if (is_own(s, w.begin, w.end)) return false;
    bool is_number = w.digits && !w.letters && !w.stops && !w.others;
    bool is_short = w.digits <= 3;
    for (int i = 0; i < r->count; i++)
        if (has_entry(s, r->words[i].abbreviations, w.begin, w.end, &sign)) {
            if (sign == '+') return !is_lower(c) && is_beginning(s, next);
            if (sign == '#' && !is_digit(c)) break;
            return false;
        }
    if (is_lower(c)) return s->no_capitals && w.letters >= 3 && !w.digits && (!w.is_ascii || w.has_vowel);
    if (is_number) {
        if (w.is_first && is_short) return false; /* the number of an item */
        if (is_digit(c)) return !(w.digits <= 2 && (r->ordinals || !r->is_known));
        return !(r->ordinals && is_short) || is_beginning(s, next);
    }
    if (w.letters == 1 && !w.digits && !w.stops && !w.others) {
        uint32_t own = read(s, w.begin).c;
        if (is_caseless(own)) return is_cjk(own) || is_caseless(c);
        if (w.is_first) return false;
        bool follows = follows_stop(s, from, w.begin);
        if (own == 'I' && !follows && r->words == LANGUAGES) return true; /* also where the language is not known */
        return is_cjk(c) || ((is_lower(own) || !follows) && is_beginning(s, next));
    }
    if (w.stops && w.letters && !w.digits && w.letters <= 2 * (w.stops + 1)) return is_caseless(c) || is_beginning(s, next);
    if (w.roman && w.letters > 1 && r->ordinals) return is_beginning(s, next);
    if (w.is_ascii && !w.has_vowel && w.letters && w.letters <= 4 && !w.digits && !is_upper(read(s, w.begin + 1).c))
        return is_beginning(s, next); /* Hrsg. */
    return true;
}

/* Whether a sentence ends at a mark with no white space behind it, but `c`, which begins at `next`. */
static bool ends_without_space(const splitting *s, size_t from, size_t begin, size_t next, uint32_t c, mark kind) {
    static const uint32_t CODE[] = {'/', '@', '\\', '_', '=', '&', '<', '>', '#', '%', '$', '|', '~', ':', 0};
    letter before = read_back(s, begin);
    if (kind == DOTS) return false;
    if (is_caseless(c)) {
        if (kind == FOREIGN) return true;
        if (!is_letter(before.c)) return kind != STOP && !is_digit(before.c);
        if (kind == STOP && !is_cjk(before.c) && !is_word(read_back(s, before.next).c)) return false; /* letters with stops */
        return kind != STOP || is_caseless(before.c) ? !is_letter(before.c) || is_cjk(c) || is_caseless(before.c) : is_cjk(c) && stop_ends(s, from, begin, next, c);
    }
    if (kind == FOREIGN) return is_word(c);
    bool opens = c == 0xbf || c == 0xa1 || c == 0x201e || c == 0x201c || c == 0xab;
    if (opens) {
        c = read(s, next = read(s, next).next).c;
        if (is_space(c)) c = read(s, next = after_spaces(s, next)).c;
    }
    if (!is_upper(c) || !is_letter(before.c) || is_upper(before.c)) return false;
    letter two = read_back(s, before.next);
    if (kind == STOP && !(is_letter(two.c) || two.c == '\'' || two.c == 0x2019)) return false;
    /* The word behind the mark: an address, a file name or code is none. */
    size_t at = next;
    int letters = 0, capitals = 0;
    letter l = {0, at};
    for (; at - next < LONGEST_WORD && is_letter((l = read(s, at)).c); at = l.next) letters++, capitals += is_upper(l.c);
    bool is_one = letters == 1 && (is_space(l.c) || l.c == '\'' || l.c == 0x2019 || !l.c);
    if (is_one ? !is_beginning(s, next) : letters < 2 || capitals > 1) return false;
    if (letters == 2 && kind == STOP && !is_beginning(s, next)) return false; /* Node.Js */
    if (!is_space(l.c) && is_one_of(l.c, CODE)) return false;
    if (l.c == '.' && is_word(read(s, l.next).c) && is_lower(read(s, l.next).c)) return false;
    for (size_t back = begin; back > from && begin - back < LONGEST_WORD; back = l.next) {
        l = read_back(s, back);
        if (is_space(l.c)) break;
        if (is_one_of(l.c, CODE)) return false;
    }
    return !(begin - from >= 3 && !strncmp(s->text + begin - 3, "www", 3));
}

/* Japanese quotes that the sentence continues: a particle follows. Chinese ones: who speaks follows, without a mark between. */
static bool quote_goes_on(const splitting *s, size_t at, uint32_t closed) {
    static const uint32_t PARTICLES[] = {0x3068, 0x3063, 0x306f, 0x304c, 0x3092, 0x306e, 0x3082, 0x306b, 0x3067,
                                         0x306a, 0x304b, 0x3088, 0x306d, 0x3084, 0x3001, 0xff0c, ',',    0};
    static const uint32_t SPEAKS[] = {0x8bf4, 0x8aaa, 0x9053, 0x95ee, 0x554f, 0x558a, 0x53eb, 0x7b54, 0x60f3, 0x8c08, 0x8a00, 0x805e, 0x601d, 0x8a71, 0};
    letter l = read(s, at);
    if (is_one_of(l.c, PARTICLES)) return true;
    if (closed == 0x300b || closed == 0x3009) return is_letter(l.c); /* the title of a book */
    for (int i = 0; i < 8 && is_cjk(l.c); i++, l = read(s, l.next))
        if (is_one_of(l.c, SPEAKS)) return true;
    return false;
}

/* Whether what opened a quote or bracket is closed soon. */
static bool closes_soon(const splitting *s, size_t at, bool round) {
    size_t last = at + LONGEST_QUOTE < s->size ? at + LONGEST_QUOTE : s->size;
    for (letter l; at < last; at = l.next) {
        l = read(s, at);
        if (round ? l.c == ')' || l.c == 0xff09 : l.c == 0x300d || l.c == 0x300f) return true;
    }
    return false;
}

/* Where a sentence ends whose mark is at `begin`; 0 where it does not end there. `*behind`: behind the marks. `quotes`,
   `brackets`: how many are open. */
static size_t end_at(const splitting *s, size_t from, size_t begin, int quotes, int brackets, size_t *behind) {
    letter l = read(s, begin);
    mark kind = mark_of(l.c), first = kind;
    size_t at = l.next;
    int marks = 1;
    for (;; marks++) { /* the marks */
        letter more = read(s, at);
        mark own = mark_of(more.c);
        if (own == NO_MARK) {
            size_t spaced = after_spaces(s, at);
            if (!(kind == STOP && first == STOP && spaced == at + 1 && read(s, spaced).c == '.')) break; /* . . . */
            more = read(s, spaced), own = STOP;
        }
        kind = own > STRONG || kind > STRONG ? (own > kind ? own : kind) : own == STRONG || kind == STRONG ? STRONG : DOTS;
        at = more.next;
    }
    *behind = at;
    if (kind == WIDE && l.c == 0xff0e && is_digit(read_back(s, begin).c)) return 0;
    uint32_t closed = 0;
    size_t end = at;
    for (int i = 0; i < 4; i++) { /* what closes */
        letter c = read(s, end);
        size_t tag = after_tag(s, end);
        if (tag > end && s->text[end + 1] == '/')
            end = tag;
        else if (is_one_of(c.c, CLOSING) && !(kind == WIDE && (c.c == 0x201c || c.c == 0x2018)) && !(c.c == '*' && is_letter(read(s, c.next).c)))
            closed = c.c, end = c.next, brackets -= brackets && (c.c == ')' || c.c == 0xff09);
        else if (is_space(c.c) && (read(s, c.next).c == 0xbb || read(s, c.next).c == 0x203a)) {
            letter guillemet = read(s, c.next), then = read(s, guillemet.next); /* Oui ! » */
            if (then.c && !is_space(then.c)) break;
            closed = guillemet.c, end = guillemet.next;
        } else
            break;
    }
    if (brackets && closes_soon(s, end, true)) return 0;
    if (closed == ')' && marks == 1 && read_back(s, begin).c == '(') return 0; /* (!) */
    if (kind == WIDE) {
        if (quotes && closed != 0x300d && closed != 0x300f && closes_soon(s, end, false)) return 0;
        if (closed && quote_goes_on(s, end, closed)) return 0;
        uint32_t c = read(s, end).c;
        return c == 0x3001 || c == 0xff0c || c == ',' ? 0 : end;
    }
    size_t next = after_spaces(s, end);
    if (next == s->size) return end;
    if (next == end) {
        uint32_t c = read(s, end).c;
        /* A quote may open rather than close. */
        if (closed && end == at + 1 && (closed == '"' || closed == '\'') && kind == STRONG && is_upper(c)) return 0;
        return ends_without_space(s, from, begin, end, c, kind) ? end : 0;
    }
    if (is_symbol(read(s, next).c) && kind != DOTS) { /* pictures that follow */
        size_t pictures = next;
        for (letter c; is_symbol((c = read(s, pictures)).c);) pictures = c.next;
        if (pictures == s->size || is_space(read(s, pictures).c)) end = pictures, next = after_spaces(s, pictures);
    }
    if (kind == FOREIGN) return end;
    for (int i = 0; i < 16; i++) { /* what opens */
        letter c = read(s, next);
        size_t tag = after_tag(s, next);
        if (tag > next)
            next = tag;
        else if (is_one_of(c.c, OPENING) || (i && is_space(c.c)))
            next = c.next;
        else
            break;
    }
    letter c = read(s, next), after = read(s, c.next);
    if (!c.c) return end;
    bool small = is_lower(c.c);
    if (small && is_upper(after.c) && is_letter(read(s, after.next).c)) small = false; /* iPhone */
    if (small && after.c == ')') small = false; /* a) b) */
    if (small && (c.c == 's' || c.c == 't' || c.c == 'n') && is_space(after.c)) {
        letter apostrophe = read_back(s, next); /* 's Avonds */
        if (apostrophe.c == '\'' || apostrophe.c == 0x2019) small = false;
    }
    if (!is_word(c.c)) return (kind == STRONG || mark_of(c.c) == NO_MARK) && !is_one_of(c.c, (const uint32_t[]){',', ';', ':', 0x60c, 0x61b, 0xff0c, 0x3001, ')', ']', 0}) ? end : 0;
    if (kind == STRONG) return small && !s->no_capitals ? 0 : end;
    if (kind == DOTS) {
        if (small || is_digit(c.c)) return 0;
        return c.c == 'I' && (is_space(after.c) || after.c == '\'' || after.c == 0x2019) ? 0 : end;
    }
    return stop_ends(s, from, begin, next, small ? c.c : is_lower(c.c) ? 'A' : c.c) ? end : 0;
}

split_rules split_rules_of(const char *language) {
    const int known = (int)(sizeof LANGUAGES / sizeof *LANGUAGES);
    size_t size = language ? strcspn(language, "-_.@") : 0;
    for (int i = 0; i < known; i++)
        if (size == strlen(LANGUAGES[i].language) && !memcmp(language, LANGUAGES[i].language, size))
            return (split_rules){&LANGUAGES[i], 1, NULL, LANGUAGES[i].ordinals, true};
    return (split_rules){.words = LANGUAGES, .count = known};
}

/* What is known of the letters of a text up to s->looked, and where its words end. */
static void look_at_letters(splitting *s) {
    for (letter l = {0, s->looked}; l.next < s->size && (s->no_capitals || s->all_capitals);) { /* usually a few letters */
        l = read(s, l.next);
        s->no_capitals = s->no_capitals && !is_upper(l.c), s->all_capitals = s->all_capitals && !is_lower(l.c);
    }
    s->looked = s->size;
    for (s->words = s->size; s->words;) {
        letter l = read_back(s, s->words);
        if (is_word(l.c)) break;
        s->words = l.next;
    }
}

splitting split_begin(const split_rules *rules, const char *text, size_t size) {
    splitting s = {.rules = rules, .text = text, .size = size, .no_capitals = true, .all_capitals = true};
    look_at_letters(&s);
    return s;
}

/* Where the sentence ends that begins at `from`, if another one follows; else 0. `known`, unless it is null, is how far
   it has been looked at, and then how far it will not have to be again when it has grown. */
static size_t sentence_end(const splitting *s, size_t from, sentence_state *known, size_t *last) {
    sentence_state now = known ? *known : (sentence_state){.at = from};
    bool is_settled = true;
    if (now.at < from) now = (sentence_state){.at = from};
    *last = now.last;
    while (now.at < s->size) {
        letter l = read(s, now.at);
        const bool is_mark = mark_of(l.c) != NO_MARK;
        if (known && is_settled) {
            *known = now;
            is_settled = !(is_mark || l.c == '\n') || s->size - now.at > LONGEST_VIEW;
        }
        if (l.c == '\n') { /* an empty line ends any sentence */
            size_t line = l.next;
            for (letter c; is_space((c = read(s, line)).c) && c.c != '\n';) line = c.next;
            if (read(s, line).c == '\n' && now.has_any && line < s->words) return now.last;
        }
        if (is_mark) {
            size_t behind, stop = end_at(s, from, now.at, now.quotes, now.brackets, &behind);
            if (stop && now.has_any && stop < s->words) return stop;
            now.at = now.last = *last = behind;
            continue;
        }
        now.has_any = now.has_any || is_word(l.c);
        now.quotes += l.c == 0x300c || l.c == 0x300e;
        now.quotes -= now.quotes && (l.c == 0x300d || l.c == 0x300f);
        now.brackets += now.at > from && (l.c == '(' || l.c == 0xff08);
        now.brackets -= now.brackets && (l.c == ')' || l.c == 0xff09);
        if (!is_space(l.c)) now.last = *last = l.next;
        now.at = l.next;
    }
    if (known && is_settled) *known = now;
    return 0;
}

bool split_next(splitting *s, size_t *begin, size_t *end) {
    const size_t from = s->at = after_spaces(s, s->at);
    size_t last;
    if (from == s->size) return false;
    const size_t stop = sentence_end(s, from, NULL, &last);
    *begin = from, *end = s->at = stop ? stop : last;
    return true;
}

bool split_grown(splitting *s, sentence_state *known, const char *text, size_t size) {
    const bool had_none = s->no_capitals, had_all = s->all_capitals;
    size_t last;
    s->text = text, s->size = size;
    look_at_letters(s);
    if (had_none != s->no_capitals || had_all != s->all_capitals) *known = (sentence_state){0};
    return sentence_end(s, 0, known, &last);
}

size_t nmt_split(const char *text, size_t size, const char *language, const char *abbreviations, size_t *spans, size_t room) {
    split_rules rules = split_rules_of(language);
    rules.more = abbreviations;
    splitting s = split_begin(&rules, text, size);
    size_t count = 0, begin, end;
    for (; split_next(&s, &begin, &end); count++)
        if (count < room) spans[2 * count] = begin, spans[2 * count + 1] = end;
    return count;
}

size_t nmt_several(const char *text, size_t size, const char *language) {
    split_rules rules = split_rules_of(language);
    size_t count = 0, begin, end;
    for (const char *line = text, *last = text + size; line < last;) {
        const char *feed = memchr(line, '\n', (size_t)(last - line)), *stop = feed ? feed : last;
        splitting s = split_begin(&rules, line, (size_t)(stop - line));
        count += split_next(&s, &begin, &end) && split_next(&s, &begin, &end);
        line = stop + 1;
    }
    return count;
}

int32_t nmt_splits(double share) { return share < 0.5; }

int32_t nmt_is_spaced(const char *language) {
    static const char WITHOUT[] = " zh zho cmn yue wuu lzh ja jpn th tha lo lao km khm my mya bo bod dz ";
    size_t size = language ? strcspn(language, "-_.@") : 0;
    for (const char *p = WITHOUT; size && (p = strstr(p, " ")) && *++p;)
        if (!strncmp(p, language, size) && p[size] == ' ') return 0;
    return 1;
}

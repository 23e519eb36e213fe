/* Words that say whether a full stop ends a sentence, by language. A word is an abbreviation as it stands; `#` behind it:
   only before a number; `~` before it: any word that ends so; `+`: a sentence ends there if what follows is one of the words that begin sentences. Words that
   begin sentences: pronouns, articles, conjunctions, adverbs, which have no capital within a sentence. */

#ifndef NMT_SPLIT_WORDS_H
#define NMT_SPLIT_WORDS_H

typedef struct {
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
     " Hr Hrn Fr Frl Dr Drs Prof Ing Dipl Mag Dir Hptm Maj Gen St Sr Jr Nr Str ~str bzw ca vgl z.B z.b d.h u.a u.U i.d.R o.ä s.o"
     " s.u v.a v.Chr+ n.Chr+ z.T z.Z z.Zt zzgl inkl exkl evtl ggf sog geb gest verh gegr jmd jdm jdn insb insbes einschl"
     " allg bes etc+ usw+ usf+ Co+ Abb Abs Abschn Abt Anm Art Aufl Bd Bde Ev Jh Jhd Kap Mio Mrd Mo Di Mi Do Sa Tel Tab Ziff"
     " Ziffer# S# § Jan Feb Mrz Apr Jun Jul Aug Sep Sept Okt Nov Dez lt max min mind Min Std Sek Tsd mtl tgl wiss röm griech"
     " lat engl frz dt hl Hl phil med jur rer nat ",
     " Der Die Das Ein Eine Einen Einem Einer Ich Er Sie Es Wir Ihr Du Man Dies Diese Dieser Dieses Mein Meine Dein Sein Seine"
     " Ihre Unser Und Aber Oder Doch Denn Wenn Als Weil Da Dann Dort Hier Nun Jetzt Heute Morgen Gestern Was Wer Wo Wie Warum"
     " Wann Welche Ist Sind War Hat Haben Kann Im In Am An Auf Aus Bei Mit Nach Von Vor Zu Zum Zur Für Durch Über Unter Seit"
     " Bis Trotz Nicht Kein Keine Ja Nein Bitte Auch So Schon Noch Nur Alle Viele Jeder Jede Jemand Niemand Den Dem Des Dazu"
     " Danach Deshalb Daher Trotzdem Jedoch Später Bald Er's Sie's Ob Dass Damit Zwei Drei Vielleicht "},
    {"fr", 0,
     " M MM Mme Mmes Mlle Mlles Me Mgr Dr Pr Prof St Ste cf ex env av apr p.ex c.-à-d éd chap coll vol# fig# art# n# p# pp# no#"
     " No# J.-C+ etc+ ",
     " Le La Les L'un Un Une Des Du De Je Tu Il Elle On Nous Vous Ils Elles Ce Cet Cette Ces C'est C'était Mon Ma Mes Ton Ta Tes"
     " Son Sa Ses Notre Nos Votre Vos Leur Leurs Et Mais Ou Or Donc Car Si Quand Comme Lorsque Que Qui Quoi Où Pourquoi Comment"
     " Dans En À Au Aux Avec Sans Sous Sur Pour Par Après Avant Puis Alors Ensuite Ne Pas Non Oui Tout Tous Toutes J'ai Il y"
     " Aujourd'hui Demain Hier Ici Là Cela Ça "},
    {"es", 0,
     " Sr Sra Srta Sres Sras Dr Dra Dres Prof Profa Lic Ing Arq D Dña Dn Ud Uds Vd Vds Gral Cap Sto Sta p.ej ej aprox ca cf av Av"
     " Avda núm# Núm# nº# pág# págs# art# vol# fig# tel etc+ EE.UU+ S.A+ a.C+ d.C+ a.m+ p.m+ ",
     " El La Los Las Un Una Unos Unas Yo Tú Él Ella Nosotros Ellos Ellas Usted Ustedes Este Esta Esto Ese Esa Eso Estos Estas Mi"
     " Tu Su Mis Tus Sus Nuestro Y Pero O Si Cuando Como Porque Aunque Que Quién Quien Qué Dónde Cómo Cuándo En De Con Sin Por"
     " Para A Al Del Desde Hasta Sobre Después Antes Luego Entonces Ahora Hoy Mañana Ayer Aquí Allí No Sí Ya También Todo Todos"
     " Hay Es Era Está Se Me Te Le Nos Lo "},
    {"it", 0,
     " Sig Sigg Sig.ra Sig.na Dott Dr Prof Avv Ing Geom Rag Arch On Mons Don S p.es es ecc+ ca cfr pag# pagg# art# vol# fig# n# nn#"
     " tel a.C+ d.C+ S.p.A+ S.r.l+ ",
     " Il Lo La I Gli Le Un Uno Una Io Tu Lui Lei Noi Voi Loro Egli Ella Questo Questa Quello Quella Questi Mio Mia Tuo Tua Suo Sua"
     " Nostro E Ma O Se Quando Come Perché Che Chi Cosa Dove In Di Da Con Su Per Tra Fra A Al Nel Nella Del Della Dopo Prima Poi"
     " Allora Ora Oggi Domani Ieri Qui Lì Non No Sì Già Anche Tutto Tutti È Era Sono Ho Ha Si Mi Ti Ci Vi C'è "},
    {"pt", 0,
     " Sr Sra Srta Srs Sras Dr Dra Drs Prof Profa Eng Exmo Exma D V.Exa p.ex ex aprox ca cf av Av tel núm# nº# pág# págs# art# vol#"
     " fig# etc+ S.A+ Ltda+ a.C+ d.C+ ",
     " O A Os As Um Uma Uns Umas Eu Tu Ele Ela Nós Vós Eles Elas Você Vocês Este Esta Isto Esse Essa Isso Aquele Aquela Meu Minha"
     " Teu Tua Seu Sua Nosso E Mas Ou Se Quando Como Porque Embora Que Quem Onde Em De Com Sem Por Para Ao À Do Da No Na Nos Nas"
     " Depois Antes Então Agora Hoje Amanhã Ontem Aqui Ali Não Sim Já Também Todo Todos Há É Era Está "},
    {"nl", 0,
     " dhr Dhr mevr Mevr mw Mw dr Dr drs Drs prof Prof ir Ir ing mr Mr St ca bijv bv d.w.z o.a m.b.t i.p.v t.a.v a.u.b resp incl excl"
     " vgl afb# blz# nr# Nr# art# tel enz+ etc+ jl+ n.Chr+ v.Chr+ ",
     " De Het Een Ik Jij Je Hij Zij Ze Wij We Jullie Zij U Dit Dat Deze Die Mijn Jouw Zijn Haar Ons Onze Hun En Maar Of Als Toen Omdat"
     " Want Hoewel Wat Wie Waar Hoe Waarom Wanneer In Op Aan Bij Met Zonder Voor Na Van Naar Over Onder Tot Dan Nu Vandaag Morgen"
     " Gisteren Hier Daar Er Niet Geen Nee Ja Ook Al Alle Is Was Heeft Kan Om Door Uit "},
    {"cs", 1,
     " pan p pí sl Ing Mgr Bc MUDr JUDr PhDr RNDr Dr Prof prof doc Doc sv Sv st Ml ml gen plk kpt např apod+ atd+ tj tzn tzv resp cca"
     " popř příp viz obr# str# č# čl# odst# tab# kap# mj aj+ r# ul nám tel tis mil min hod Kč+ n.l+ př.n.l+ ",
     " Ten Ta To Ti Ty Já On Ona Ono My Vy Oni Tento Tato Toto Můj Moje Tvůj Jeho Její Náš Váš Jejich A Ale Nebo Když Protože Že Aby Jestli"
     " Co Kdo Kde Kdy Jak Proč Který V Ve Na Do Z Ze S Se K Ke O Po Pro Před Za Od U Při Potom Pak Teď Dnes Zítra Včera Tady Tam Ne Ano"
     " Už Také Všichni Všechno Je Byl Byla Bylo Jsem Jsou Má Mám Není "},
    {"pl", 1,
     " p pp dr hab inż mgr prof Dr Prof ks św o gen płk kpt red im ul al pl np itd+ itp+ tj tzn tzw m.in ok ds wg ww r+ w+ zob por"
     " godz# min sek str# s# nr# Nr# art# ust# pkt# rys# tab# tel tys mln mld zł+ n.e+ p.n.e+ ",
     " Ten Ta To Ci Te Ja On Ona Ono My Wy Oni One Mój Moja Twój Jego Jej Nasz Wasz Ich I Ale Albo Lub Gdy Kiedy Ponieważ Że Żeby Czy Jeśli"
     " Co Kto Gdzie Jak Dlaczego Który W We Na Do Z Ze O Po Przed Za Od U Przy Dla Potem Wtedy Teraz Dziś Dzisiaj Jutro Wczoraj Tutaj Tu"
     " Tam Nie Tak Już Też Także Wszyscy Wszystko Jest Był Była Było Są Mam Ma Jestem Pan Pani "},
    {"ru", 0,
     " г гг ул пр просп пер пл д кв корп стр рис# табл# гл# ст# п# пп# с# см ср напр т.е т.к т.н т.д+ т.п+ др+ пр+ руб+ коп+ тыс млн млрд"
     " им акад проф доц инж ген полк кап св Св тел обл р н.э+ ок# до мин сек час г-н г-жа ",
     " Он Она Оно Они Я Ты Мы Вы Это Этот Эта Эти Тот Та Те То Мой Моя Твой Его Её Ее Наш Ваш Их И А Но Или Если Когда Потому Хотя Что Кто Где"
     " Как Почему Зачем Какой В Во На До Из С Со К Ко О Об По При Для Перед За От У После Потом Затем Теперь Сейчас Сегодня Завтра Вчера"
     " Здесь Там Тут Не Нет Да Уже Также Все Всё Есть Был Была Было Были Однако Поэтому "},
    {"uk", 0,
     " р рр м с вул пр просп пров пл буд кв корп стор# рис# табл# гл# ст# п# пп# див пор напр т.зв т.д+ т.п+ ін+ грн+ коп+ тис млн млрд"
     " ім акад проф доц інж ген полк св Св тел обл н.е+ хв сек год ",
     " Він Вона Воно Вони Я Ти Ми Ви Це Цей Ця Ці Той Та Те Ті Мій Моя Твій Його Її Наш Ваш Їх І Й А Але Або Якщо Коли Бо Хоча Що Хто Де Як Чому"
     " Який У В На До З Із Зі О Об По При Для Перед За Від Після Потім Тоді Тепер Зараз Сьогодні Завтра Вчора Тут Там Не Ні Так Вже Також"
     " Усі Всі Все Є Був Була Було Були Однак Тому "},
    {"ar", 0, " د أ م ص.ب ت ق.م+ هـ+ م+ ", " "},
    {"hi", 0, " डॉ श्री प्रो पं कु सु रु ई पू ", " "},
};

#endif

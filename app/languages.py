"""Languages as people write them: ISO codes, region tags, English, Chinese and native names.

Covers the hundred languages of Whisper large-v3, the 31 of Fun-ASR-MLT-Nano, and the languages that ISO 639-3 counts to
Chinese and that Fun-ASR-Nano hears. English names are those that OpenAI's `whisper-1` answers with.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

# code | English name | Chinese name | every other way to say it: ISO 639-2 and -3 codes, variants, native names
_TABLE = """
en|english|英语|eng,英文,美语
zh|chinese|中文|zho,chi,cmn,mandarin,mandarin chinese,汉语,华语,国语,普通话,官话,简体中文,繁体中文,中国话
yue|cantonese|粤语|cantonese chinese,广东话,广州话,广府话,白话
wuu|wu chinese|吴语|shanghainese,上海话,苏州话
nan|min nan chinese|闽南语|hokkien,taiwanese,southern min,台语,福建话,潮汕话
hak|hakka chinese|客家话|hakka,客家语
gan|gan chinese|赣语|江西话
hsn|xiang chinese|湘语|湖南话
cjy|jinyu chinese|晋语|山西话
ja|japanese|日语|jpn,日本語,日本语,にほんご
ko|korean|韩语|kor,韩国语,朝鲜语,한국어,한국말
de|german|德语|deu,ger,deutsch
fr|french|法语|fra,fre,français
es|spanish|西班牙语|spa,castilian,español,castellano,西语
pt|portuguese|葡萄牙语|por,português,葡语
it|italian|意大利语|ita,italiano,意语
ru|russian|俄语|rus,русский,русский язык,俄罗斯语
nl|dutch|荷兰语|nld,dut,nederlands,flemish,vlaams
pl|polish|波兰语|pol,polski
uk|ukrainian|乌克兰语|ukr,українська
be|belarusian|白俄罗斯语|bel,беларуская
cs|czech|捷克语|ces,cze,čeština,česky
sk|slovak|斯洛伐克语|slk,slo,slovenčina
sl|slovenian|斯洛文尼亚语|slv,slovene,slovenščina
hr|croatian|克罗地亚语|hrv,hrvatski
sr|serbian|塞尔维亚语|srp,српски,srpski
bs|bosnian|波斯尼亚语|bos,bosanski,波黑语
mk|macedonian|马其顿语|mkd,mac,македонски
bg|bulgarian|保加利亚语|bul,български
ro|romanian|罗马尼亚语|ron,rum,română,moldavian,moldovan,摩尔多瓦语
hu|hungarian|匈牙利语|hun,magyar
el|greek|希腊语|ell,gre,ελληνικά
tr|turkish|土耳其语|tur,türkçe
sv|swedish|瑞典语|swe,svenska
da|danish|丹麦语|dan,dansk
no|norwegian|挪威语|nor,nb,nob,bokmål,norwegian bokmål,norsk,书面挪威语
nn|nynorsk|新挪威语|nno,norwegian nynorsk,norsk nynorsk
fi|finnish|芬兰语|fin,suomi
et|estonian|爱沙尼亚语|est,eesti
lv|latvian|拉脱维亚语|lav,latviešu
lt|lithuanian|立陶宛语|lit,lietuvių
is|icelandic|冰岛语|isl,ice,íslenska
fo|faroese|法罗语|fao,føroyskt
ga|irish|爱尔兰语|gle,irish gaelic,gaeilge
cy|welsh|威尔士语|cym,wel,cymraeg
br|breton|布列塔尼语|bre,brezhoneg
mt|maltese|马耳他语|mlt,malti
ca|catalan|加泰罗尼亚语|cat,català,valencian,valencià
gl|galician|加利西亚语|glg,galego
eu|basque|巴斯克语|eus,baq,euskara
oc|occitan|奥克语|oci,occitan
lb|luxembourgish|卢森堡语|ltz,letzeburgesch,lëtzebuergesch
la|latin|拉丁语|lat,latina
sq|albanian|阿尔巴尼亚语|sqi,alb,shqip
hy|armenian|亚美尼亚语|hye,arm,հայերեն
ka|georgian|格鲁吉亚语|kat,geo,ქართული
az|azerbaijani|阿塞拜疆语|aze,azeri,azərbaycan
kk|kazakh|哈萨克语|kaz,қазақ,қазақша
uz|uzbek|乌兹别克语|uzb,oʻzbek,o'zbek
tk|turkmen|土库曼语|tuk,türkmen
tg|tajik|塔吉克语|tgk,тоҷикӣ
tt|tatar|鞑靼语|tat,татар,татарча
ba|bashkir|巴什基尔语|bak,башҡорт,башҡортса
mn|mongolian|蒙古语|mon,монгол,蒙语
bo|tibetan|藏语|bod,tib,བོད་སྐད་
he|hebrew|希伯来语|heb,iw,עברית
yi|yiddish|意第绪语|yid,ייִדיש
ar|arabic|阿拉伯语|ara,العربية,阿语
fa|persian|波斯语|fas,per,farsi,فارسی
ps|pashto|普什图语|pus,pushto,پښتو
ur|urdu|乌尔都语|urd,اردو
sd|sindhi|信德语|snd,سنڌي
hi|hindi|印地语|hin,हिन्दी,印度语
bn|bengali|孟加拉语|ben,bangla,বাংলা
pa|punjabi|旁遮普语|pan,panjabi,ਪੰਜਾਬੀ
gu|gujarati|古吉拉特语|guj,ગુજરાતી
mr|marathi|马拉地语|mar,मराठी
ne|nepali|尼泊尔语|nep,नेपाली
as|assamese|阿萨姆语|asm,অসমীয়া
sa|sanskrit|梵语|san,संस्कृतम्
si|sinhala|僧伽罗语|sin,sinhalese,සිංහල
ta|tamil|泰米尔语|tam,தமிழ்
te|telugu|泰卢固语|tel,తెలుగు
kn|kannada|卡纳达语|kan,ಕನ್ನಡ
ml|malayalam|马拉雅拉姆语|mal,മലയാളം
th|thai|泰语|tha,ไทย,ภาษาไทย
lo|lao|老挝语|lao,ລາວ,寮语
my|myanmar|缅甸语|mya,bur,burmese,မြန်မာ
km|khmer|高棉语|khm,cambodian,ខ្មែរ,柬埔寨语
vi|vietnamese|越南语|vie,tiếng việt
id|indonesian|印尼语|ind,in,bahasa indonesia,印度尼西亚语
ms|malay|马来语|msa,may,bahasa melayu
tl|tagalog|菲律宾语|tgl,fil,filipino,他加禄语
jv|javanese|爪哇语|jav,jw,basa jawa
su|sundanese|巽他语|sun,basa sunda
mi|maori|毛利语|mri,mao,te reo māori
haw|hawaiian|夏威夷语|ʻōlelo hawaiʻi
sw|swahili|斯瓦希里语|swa,kiswahili
am|amharic|阿姆哈拉语|amh,አማርኛ
so|somali|索马里语|som,soomaali
ha|hausa|豪萨语|hau
yo|yoruba|约鲁巴语|yor,yorùbá
sn|shona|修纳语|sna,chishona,绍纳语
ln|lingala|林加拉语|lin,lingála
mg|malagasy|马达加斯加语|mlg,马拉加斯语
af|afrikaans|南非荷兰语|afr,阿非利堪斯语
ht|haitian creole|海地克里奥尔语|hat,haitian,kreyòl ayisyen,海地语
"""

_PART_OF = {"nn": "no"} | dict.fromkeys(("yue", "wuu", "nan", "hak", "gan", "hsn", "cjy"), "zh")
"""Languages that are part of another one (the macrolanguages of ISO 639-3): who knows that one is asked for it."""

_DETECT = frozenset({"", "auto", "none", "null", "und", "自动", "自动检测"})
_SIMPLIFIED = str.maketrans("漢華國廣東韓鮮蘭羅亞馬爾烏緬臘來賓粵簡體", "汉华国广东韩鲜兰罗亚马尔乌缅腊来宾粤简体")
_SUBTAG = re.compile(r"[a-z0-9]{1,8}")


def language_code(text: str | None) -> str | None:
    """The ISO 639 code of a language, None where the model is to find out: None, "", "auto", "自动" ...

    Case, width, accents' encoding and surrounding spaces do not matter; region and script tags ("en-US", "zh_Hans")
    are read as their language.

    Raises:
        ValueError: no language is called so.
    """
    wanted = _normal(text or "")
    if wanted in _DETECT:
        return None
    code = _codes().get(wanted) or _chinese(wanted) or _tagged(wanted)
    if code is None:
        raise ValueError("no language is called so; use an ISO 639 code such as en, or a name such as English or 中文")
    return code


def english_name(code: str) -> str:
    """The lower-case English name as `whisper-1` gives it; the code itself for a language that is not in the table."""
    names = _names().get(_codes().get(_normal(code), ""))
    return names[0] if names else code


def chinese_name(code: str) -> str:
    """The Chinese name; the code itself for a language that is not in the table."""
    names = _names().get(_codes().get(_normal(code), ""))
    return names[1] if names else code


def choose_language(text: str | None, spoken: Iterable[str]) -> str | None:
    """The code under which a model knows a language, of the codes that it speaks; None to let it find out.

    A model that does not know Cantonese by itself hears it as Chinese, and is asked for Chinese.

    Raises:
        ValueError: no language at all, or none of the model's; the message names what is allowed.
    """
    code = language_code(text)
    if code is None:
        return None
    known = {_codes().get(_normal(own), own): own for own in spoken}
    own = known.get(code) or known.get(_PART_OF.get(code, code))
    if own is None:
        raise ValueError(f"the model does not know {english_name(code)}; it knows {', '.join(known.values())}, or auto")
    return own


def _normal(text: str) -> str:
    """Half-width, simplified where the word for language is concerned, lower case, single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("語", "语").replace("話", "话")
    return " ".join(unicodedata.normalize("NFC", folded).split())


def _chinese(name: str) -> str | None:
    """法文 is 法语; a few traditional characters differ from the simplified ones of the table."""
    simple = name.translate(_SIMPLIFIED)
    codes = _codes()
    return codes.get(simple) or (codes.get(simple[:-1] + "语") if simple.endswith("文") else None)


def _tagged(tag: str) -> str | None:
    """A language tag (BCP 47, or a locale with underscores): the language is its first part."""
    language, *rest = re.split(r"[-_]", tag.partition(".")[0])
    if not rest or len(language) > 3 or not all(_SUBTAG.fullmatch(part) for part in rest):
        return None
    code = _codes().get(language)
    return "yue" if code == "zh" and "yue" in rest else code


@cache
def _names() -> dict[str, tuple[str, str]]:
    return {code: (english, chinese) for code, english, chinese, _ in _rows()}


@cache
def _codes() -> dict[str, str]:
    """Every known spelling to its code."""
    codes: dict[str, str] = {}
    for code, english, chinese, others in _rows():
        for name in (code, english, chinese, *others.split(",")):
            codes.setdefault(_normal(name), code)
    return codes


def _rows() -> list[tuple[str, str, str, str]]:
    rows = []
    for line in _TABLE.strip().splitlines():
        code, english, chinese, others = line.split("|")
        rows.append((code, english, chinese, others))
    return rows

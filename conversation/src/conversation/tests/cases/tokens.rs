use crate::conversation::tests::notation::{conversation, message};
use crate::conversation::{Conversation, CountedMessage, Estimator, TokenUsage, Tokenizer, message_cost};

#[test]
fn h01_the_usage_of_requests_adds_up() {
    let mut spent = TokenUsage::default();
    for (input, output, total) in [(100, 50, 150), (200, 100, 300)] {
        spent.add(TokenUsage::new(input, output, total));
    }
    assert_eq!(spent, TokenUsage::new(300, 150, 450), "H01");
}

#[test]
fn h02_the_last_usage_figure_of_a_stream_counts() {
    let stream = [
        TokenUsage::new(100, 0, 100),
        TokenUsage::new(100, 25, 125),
        TokenUsage::new(100, 50, 150),
    ];
    let mut spent = TokenUsage::default();
    spent.add(stream.into_iter().next_back().expect("three"));
    assert_eq!(spent, TokenUsage::new(100, 50, 150), "H02");
}

#[test]
fn h03_h04_an_empty_conversation_costs_zero_tokens_and_an_empty_message_four() {
    assert_eq!(Conversation::new().visible_tokens(), 0, "H03");
    assert_eq!(message_cost(&message("user:"), &Estimator), 4, "H04");
    assert_eq!(
        Conversation::from_messages([CountedMessage::new(message("user:"), &Estimator)]).visible_tokens(),
        4,
        "H04"
    );
}

#[test]
fn the_estimate_for_chinese_is_near_the_exact_count() {
    // 24 characters; real vocabularies need 15 to 30 tokens for them.
    let text = "工具调用块必须保持完整性不能被其他消息打断上下文压缩";
    let estimated = Estimator.count(text);
    assert!((15..=40).contains(&estimated), "{estimated}");
}

/// The numbers are counts of the tokenizer `cl100k_base`.
#[test]
fn the_estimate_is_near_the_count_of_a_tokenizer_for_every_script_and_for_random_characters() {
    for (counted, text) in [
        (
            83,
            "कृपया हर उत्तर हिन्दी में लिखें और ग्राहक का पता किसी को न बताएँ, जब तक वह स्वयं न कहे।",
        ),
        (91, "অনুগ্রহ করে প্রতিটি উত্তর বাংলায় লিখুন এবং গ্রাহকের ঠিকানা কাউকে বলবেন না।"),
        (
            138,
            "தயவுசெய்து ஒவ்வொரு பதிலையும் தமிழில் எழுதுங்கள், வாடிக்கையாளரின் முகவரியை யாரிடமும் சொல்லாதீர்கள்.",
        ),
        (150, "దయచేసి ప్రతి సమాధానాన్ని తెలుగులో రాయండి, వినియోగదారుని చిరునామాను ఎవరికీ చెప్పకండి."),
        (142, "ದಯವಿಟ್ಟು ಪ್ರತಿ ಉತ್ತರವನ್ನು ಕನ್ನಡದಲ್ಲಿ ಬರೆಯಿರಿ, ಗ್ರಾಹಕರ ವಿಳಾಸವನ್ನು ಯಾರಿಗೂ ಹೇಳಬೇಡಿ."),
        (139, "ദയവായി എല്ലാ ഉത്തരങ്ങളും മലയാളത്തിൽ എഴുതുക, ഉപഭോക്താവിന്റെ വിലാസം ആരോടും പറയരുത്."),
        (127, "કૃપા કરીને દરેક જવાબ ગુજરાતીમાં લખો અને ગ્રાહકનું સરનામું કોઈને કહેશો નહીં."),
        (110, "ਕਿਰਪਾ ਕਰਕੇ ਹਰ ਜਵਾਬ ਪੰਜਾਬੀ ਵਿੱਚ ਲਿਖੋ ਅਤੇ ਗਾਹਕ ਦਾ ਪਤਾ ਕਿਸੇ ਨੂੰ ਨਾ ਦੱਸੋ।"),
        (145, "කරුණාකර සෑම පිළිතුරක්ම සිංහලෙන් ලියන්න, පාරිභෝගිකයාගේ ලිපිනය කාටවත් කියන්න එපා."),
        (205, "ଦୟାକରି ପ୍ରତ୍ୟେକ ଉତ୍ତର ଓଡ଼ିଆରେ ଲେଖନ୍ତୁ ଏବଂ ଗ୍ରାହକଙ୍କ ଠିକଣା କାହାକୁ କୁହନ୍ତୁ ନାହିଁ।"),
        (63, "กรุณาเขียนคำตอบทุกข้อเป็นภาษาไทย และห้ามบอกที่อยู่ของลูกค้าแก่ผู้ใด"),
        (131, "ກະລຸນາຂຽນຄຳຕອບທຸກຂໍ້ເປັນພາສາລາວ ແລະຢ່າບອກທີ່ຢູ່ຂອງລູກຄ້າໃຫ້ໃຜ"),
        (175, "ကျေးဇူးပြု၍ အဖြေတိုင်းကို မြန်မာလို ရေးပါ၊ ဖောက်သည်၏ လိပ်စာကို မည်သူ့ကိုမျှ မပြောပါနှင့်။"),
        (117, "សូមសរសេរចម្លើយទាំងអស់ជាភាសាខ្មែរ ហើយកុំប្រាប់អាសយដ្ឋានអតិថិជនដល់អ្នកណា។"),
        (123, "བོད་སྐད་ནང་ལན་ཚང་མ་འབྲི་རོགས། ཉོ་མཁན་གྱི་ཁ་བྱང་སུ་ལའང་མ་བཤད།"),
        (
            145,
            "გთხოვთ, ყველა პასუხი დაწეროთ ქართულად და მომხმარებლის მისამართი არავის უთხრათ.",
        ),
        (
            143,
            "Խնդրում եմ բոլոր պատասխանները գրել հայերեն և հաճախորդի հասցեն ոչ մեկին չասել։",
        ),
        (128, "እባክዎ ሁሉንም መልሶች በአማርኛ ይጻፉ እና የደንበኛውን አድራሻ ለማንም አይንገሩ።"),
        (53, "אנא כתבו כל תשובה בעברית ואל תמסרו את כתובת הלקוח לאיש."),
        (
            46,
            "يرجى كتابة كل إجابة باللغة العربية وعدم إخبار أي شخص بعنوان العميل.",
        ),
        (50, "لطفاً هر پاسخ را به فارسی بنویسید و نشانی مشتری را به هیچ‌کس نگویید."),
        (60, "براہ کرم ہر جواب اردو میں لکھیں اور گاہک کا پتہ کسی کو نہ بتائیں۔"),
        (
            80,
            "Παρακαλώ γράψτε κάθε απάντηση στα ελληνικά και μην πείτε σε κανέναν τη διεύθυνση του πελάτη.",
        ),
        (
            287,
            "/T/rPJJQt5dKm1KLaWNjIaRhtV71W3vq/YCamp6SW3mmNC+g/biylNl/xhA9kgibJfpeA59SqOipX2TWWJwfeEQGZULsOACNMx39OyckFjF2lOL+hgOXt3QwY3i1Q32KdVYi1tegtIywSPJ5gpyqZSr4maPh8WvcRcyOJoY9Xzt/OoaiRLnQJoQ3ON60jQPtMDTvhZDk0mOZrsK9E6jgA1if4as+2vjGUV1kECRvziiSYBvCIoce9WpNUpfSOPQKn+AfTdkXs8fOYvAHQ4TV0mAxk91MeflElhUGeReBQZgg2AS4T2KP6zjg+eDuUDpjiTDRtnCAwcleH83r25pLbVNSHGWzdma6cVsIzQRasJNyr9JxCtnO9oicgu+fmFci3Wf94EOykl0cxPIY",
        ),
        (
            284,
            "_T_rPJJQt5dKm1KLaWNjIaRhtV71W3vq_YCamp6SW3mmNC-g_biylNl_xhA9kgibJfpeA59SqOipX2TWWJwfeEQGZULsOACNMx39OyckFjF2lOL-hgOXt3QwY3i1Q32KdVYi1tegtIywSPJ5gpyqZSr4maPh8WvcRcyOJoY9Xzt_OoaiRLnQJoQ3ON60jQPtMDTvhZDk0mOZrsK9E6jgA1if4as-2vjGUV1kECRvziiSYBvCIoce9WpNUpfSOPQKn-AfTdkXs8fOYvAHQ4TV0mAxk91MeflElhUGeReBQZgg2AS4T2KP6zjg-eDuUDpjiTDRtnCAwcleH83r25pLbVNSHGWzdma6cVsIzQRasJNyr9JxCtnO9oicgu-fmFci3Wf94EOykl0cxPIY",
        ),
        (
            334,
            "fd3feb3c9250b7974a9b528b69636321a461b55ef55b7beafd809a9a9e925b79a6342fa0fdb8b294d97fc6103d92089b25fa5e039f52a8e8a95f64d6589c1f7844066542ec38008d331dfd3b272416317694e2fe860397b774306378b5437d8a755622d6d7a0b48cb048f279829caa652af899a3e1f16bdc45cc8e26863d5f3b7f3a86a244b9d026843738deb48d03ed3034ef8590e4d26399aec2bd13a8e003589fe1ab3edaf8c6515d6410246fce2892601bc222871ef56a4d5297d238f40a9fe01f4dd917b3c7ce62f0074384d5d2603193dd4c79f944961506791781419820d804b84f628feb38e0f9e0ee503a638930d1b67080c1c95e1fcdebdb9a4b6d53521c65b37666ba715b08cd045ab09372afd2710ad9cef6889c82ef9f985722dd67fde043b2925d1cc4f218",
        ),
        (
            344,
            "FD3FEB3C9250B7974A9B528B69636321A461B55EF55B7BEAFD809A9A9E925B79A6342FA0FDB8B294D97FC6103D92089B25FA5E039F52A8E8A95F64D6589C1F7844066542EC38008D331DFD3B272416317694E2FE860397B774306378B5437D8A755622D6D7A0B48CB048F279829CAA652AF899A3E1F16BDC45CC8E26863D5F3B7F3A86A244B9D026843738DEB48D03ED3034EF8590E4D26399AEC2BD13A8E003589FE1AB3EDAF8C6515D6410246FCE2892601BC222871EF56A4D5297D238F40A9FE01F4DD917B3C7CE62F0074384D5D2603193DD4C79F944961506791781419820D804B84F628FEB38E0F9E0EE503A638930D1B67080C1C95E1FCDEBDB9A4B6D53521C65B37666BA715B08CD045AB09372AFD2710AD9CEF6889C82EF9F985722DD67FDE043B2925D1CC4F218",
        ),
        (
            317,
            "7U76WPESKC3ZOSU3KKFWSY3DEGSGDNK66VNXX2X5QCNJVHUSLN42MNBPUD63RMUU3F74MEB5SIEJWJP2LYBZ6UVI5CUV6ZGWLCOB66CEAZSUF3BYACGTGHP5HMTSIFRRO2KOF7UGAOL3O5BQMN4LKQ35RJ2VMIWW26QLJDFQJDZHTAU4VJSSV6EZUPQ7C264IXGI4JUGHVPTW7Z2Q2REJOOQE2CDOOG6WSGQH3JQGTXYLEHE2JRZTLWCXUJ2RYADLCP6DKZ63L4MMUK5MQICI36OFCJGAG6CEKDR55LKJVJJPURY6QFJ7YA7JXMRPM6HZZRPAB2DQTK5EYBRSPOUY6PZISLBKBTZC6AUDGBA3ACLQT3CR7VTRYHZ4DXFAOTDREYNDNTQQDA4SXQ7ZXV5XGSLNVJVEHDFWN3GNOTRLMEM2BC2WCJXFL6SOEFNTTXWRCOIF347TBLSFXLH7XQEHMUSLUOMJ4QY",
        ),
        (
            108,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
        ),
        (
            23,
            "The quick brown fox jumps over the lazy dog, and then it has to go home before the rain sets in.",
        ),
        (
            29,
            "Der Rechtsanwalt hat den Versicherungsvertrag geprüft und die Krankenversicherungskarte zurückgeschickt.",
        ),
        (
            45,
            "fn main() { let xAxis2: Vec<u8> = vec![1, 2, 3]; println!(\"{x:?}\"); } // handleToolCall2 utf8mb4 sha256sum http2Server",
        ),
    ] {
        let estimated = Estimator.count(text);
        assert!(
            estimated * 3 >= counted * 2 && estimated <= counted * 2,
            "{estimated} instead of {counted}: {text}"
        );
    }
}

#[test]
fn words_and_names_in_code_count_a_fourth_of_their_characters() {
    for text in [
        "getHttpResponseHeaderFieldValue2AsString",
        "sha256sum",
        "http2Server",
        "AX-7741",
        "12345678901234",
    ] {
        let quarters: u64 = text.chars().map(|c| if c == '-' { 2 } else { 1 }).sum();
        assert_eq!(Estimator.count(text), quarters.div_ceil(4), "{text}");
    }
}

#[test]
fn tool_calls_count_toward_the_cost() {
    let with = message_cost(&message("a[1]"), &Estimator);
    let without = message_cost(&message("a:"), &Estimator);
    assert!(with > without);
}

#[test]
fn the_visible_token_sum_equals_the_sum_of_visible_messages() {
    let mut history = conversation(&["s", "u1", "a1", "u2", "a2"]);
    let sum = |history: &Conversation| history.visible().iter().map(|one| one.tokens).sum::<u64>();
    assert_eq!(history.visible_tokens(), sum(&history));
    history.start_new_batch(3).expect("in range");
    assert_eq!(history.visible_tokens(), sum(&history));
}

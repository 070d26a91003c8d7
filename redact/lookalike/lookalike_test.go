package lookalike

import (
	"slices"
	"testing"
)

func TestTO03_NamesThatReadAlike(t *testing.T) {
	alike := [][2]string{
		{"send_mail", "send_maiI"}, {"send_mail", "send-mail"}, {"send_mail", "Send.Mail"}, {"send_mail", "sendMail"}, {"send_mail", "send_mai1"},
		{"delete_user", "dеlete_user"}, {"delete_user", "ⅾelete_user"}, {"delete_user", "ｄｅｌｅｔｅ＿ｕｓｅｒ"}, {"delete_user", "delete_usér"}, {"delete_user", "delete_use\u0301r"},
		{"find_file", "ﬁnd_ﬁle"}, {"modern", "modem"}, {"wire", "vvire"}, {"login", "l0gin"}, {"github", "g1thub"}, {"ΟΡΕΝ_file", "open_file"}, {"Ɓuild_it", "build_it"},
		{"𝐝elete_user", "delete_user"},
	}
	for _, p := range alike {
		if a, b := Skeleton(p[0]), Skeleton(p[1]); a != b {
			t.Errorf("%s and %s: %q and %q", p[0], p[1], a, b)
		}
	}
	for _, p := range [][2]string{{"read_file", "write_file"}, {"get_a", "get_b"}, {"поиск", "search"}, {"list_v1x", "list_v2x"}} {
		if Skeleton(p[0]) == Skeleton(p[1]) {
			t.Errorf("%s and %s have one skeleton", p[0], p[1])
		}
	}
}

func TestTO03_DisguisedNames(t *testing.T) {
	for _, s := range []string{"dеlete_user", "ⅾelete_user", "ｄelete_user", "ﬁnd", "delete_use\u0301r", "x\u0323y", "сор", "delеte_поиск", "ɡet", "𝐝elete"} {
		if Disguised(s) == "" {
			t.Errorf("%q passes", s)
		}
	}
	for _, s := range []string{"delete_user", "é", "größe", "поиск", "検索", "חיפוש", "αναζήτηση", "수정"} {
		if why := Disguised(s); why != "" {
			t.Errorf("%q %s", s, why)
		}
	}
}

func TestNear(t *testing.T) {
	for _, p := range [][2]string{{"sendmall", "sendmal"}, {"sendmall", "sendmaal"}, {"sendmall", "senmdall"}, {"sendmall", "sendmalll"}} {
		if !Near(p[0], p[1]) || !Near(p[1], p[0]) {
			t.Errorf("%s and %s are not near", p[0], p[1])
		}
		shared := false
		for _, k := range Neighbours(p[0]) {
			shared = shared || slices.Contains(Neighbours(p[1]), k)
		}
		if !shared {
			t.Errorf("%s and %s have no key in common", p[0], p[1])
		}
	}
	for _, p := range [][2]string{{"getlssue", "getlssues"}, {"stepone2", "stepone3"}, {"tool12", "tool122"}, {"add", "ads"}, {"readflle", "wrlteflle"}, {"same_name", "same_name"}} {
		if Near(p[0], p[1]) {
			t.Errorf("%s and %s are near", p[0], p[1])
		}
	}
}

func FuzzSkeleton(f *testing.F) {
	for _, s := range []string{"send_mail", "dеlete", "\xff", "ﬁ\u0301", "Ɓ"} {
		f.Add(s, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		s := Skeleton(a)
		Disguised(a)
		if Near(s, Skeleton(b)) != Near(Skeleton(b), s) {
			t.Errorf("near one way only: %q %q", a, b)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func frame(env []string, conf string, netns bool) []byte {
	b := AppendEnv(make([]byte, RequestHeader), env)
	h := Header{Netns: netns, Env: len(b) - RequestHeader, Conf: len(conf)}
	h.Put(b)
	return append(b, conf...)
}

func TestRequestTravels(t *testing.T) {
	b := frame([]string{"PATH=/bin", "CNI_COMMAND=ADD", "CNI_ARGS=A=1;B=2", "CNI_NETNS="}, `{"name":"n"}`, true)
	r, err := ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"CNI_COMMAND": "ADD", "CNI_ARGS": "A=1;B=2", "CNI_NETNS": "", "PATH": "", "CNI": "",
	} {
		if got := r.Getenv(name); got != want {
			t.Errorf("Getenv(%s) = %q, want %q", name, got, want)
		}
	}
	if string(r.Stdin()) != `{"name":"n"}` || !r.Netns {
		t.Errorf("got %q netns %v", r.Stdin(), r.Netns)
	}
}

func TestRequestLimits(t *testing.T) {
	head := func(h Header) []byte {
		b := make([]byte, RequestHeader)
		h.Put(b)
		return b
	}
	cases := map[string]struct {
		frame []byte
		want  error
	}{
		"empty":   {nil, ErrShort},
		"foreign": {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrMagic},
		"version": {append([]byte("weft\x02"), make([]byte, 11)...), ErrVersion},
		"flags":   {append([]byte("weft\x01\x84"), make([]byte, 10)...), ErrVersion},
		"env":     {head(Header{Env: MaxEnv + 1}), ErrEnv},
		"conf":    {head(Header{Conf: MaxConf + 1}), ErrConf},
		"cut":     {head(Header{Conf: 1}), ErrShort},
		"longer":  {append(head(Header{}), 0), ErrLong},
	}
	for name, c := range cases {
		if _, err := ParseRequest(c.frame); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestAnswerTravels(t *testing.T) {
	for _, exit := range []int{0, 1, 255} {
		b := AppendAnswer(nil, exit, []byte("out"))
		a, err := ParseAnswer(b)
		if err != nil || a.Exit != exit || string(b[AnswerHeader:][:a.Len]) != "out" {
			t.Errorf("exit %d: got %+v, %v", exit, a, err)
		}
	}
	for want, b := range map[error][]byte{
		ErrShort: nil, ErrMagic: []byte("weft\x01\x00\x00\x00\x00\x00\x00\x00"),
		ErrVersion: []byte("WEFT\x00\x00\x01\x00\x00\x00\x00\x00"),
		ErrAnswer:  []byte("WEFT\x00\x00\x00\x00\xff\x00\x00\x00"),
	} {
		if _, err := ParseAnswer(b); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", b, err, want)
		}
	}
	if _, err := ParseAnswer(AppendOtherVersion(nil)); !errors.Is(err, ErrVersion) {
		t.Errorf("the answer to another version: got %v", err)
	}
}

func TestField(t *testing.T) {
	cases := []struct {
		doc, want string
		found     bool
	}{
		{`{"socket":"/a"}`, "/a", true},
		{` { "x" : [1,{"socket":"/no"}], "socket" : "/a\u002fb\n" } `, "/a/b\n", true},
		{`{"socket":"/a","socket":"/b"}`, "/b", true},
		{`{"socket":"/a","socket":7}`, "", false},
		{`{"sock\u0065t":"/a"}`, "/a", true},
		{`{"x":"\"socket\":\"/no\""}`, "", false},
		{`{"socket":"\ud83d\ude00 \ud83d \udead"}`, "\U0001f600 \ufffd \ufffd", true},
		{`{"socket":"/a"`, "", false},
		{`{"socket":"/a"}}`, "", false},
		{`["socket","/a"]`, "", false},
		{`{"socket":"/a",}`, "", false},
		{"", "", false},
	}
	for _, c := range cases {
		got, found := Field([]byte(c.doc), "socket")
		if got != c.want || found != c.found {
			t.Errorf("%s: got %q %v, want %q %v", c.doc, got, found, c.want, c.found)
		}
	}
	if s := Socket([]byte(`{"socket":""}`)); s != DefaultSocket {
		t.Errorf("empty socket: got %s", s)
	}
	deep := strings.Repeat(`{"a":`, 200000)
	if _, found := Field([]byte(deep), "a"); found {
		t.Error("a document deeper than the limit was accepted")
	}
}

// fieldByJSON is Field implemented by encoding/json, for comparison.
func fieldByJSON(doc []byte, key string) (string, bool) {
	if c := bytes.TrimLeft(doc, " \t\r\n"); len(c) == 0 || c[0] != '{' {
		return "", false
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(doc, &top) != nil || len(top[key]) == 0 || top[key][0] != '"' {
		return "", false
	}
	var v string
	err := json.Unmarshal(top[key], &v)
	return v, err == nil
}

func FuzzField(f *testing.F) {
	for _, s := range []string{
		`{"socket":"/a","b":[1,-0.5e+3,true,null,{"socket":"x"}]}`, `{"socket":"\u00e9\ud800\\\/"}`, `{"a":01}`,
		`{"a":1.}`, `{"a":-}`, "{\"a\":\"\xff\"}", `{"":""}`, `{"socket":"a"} x`, `{"a":tru}`,
		`{"socket":"\uD83D\uDE00\uD83Dx"}`,
	} {
		f.Add([]byte(s), "socket")
	}
	f.Fuzz(func(t *testing.T, doc []byte, key string) {
		if !utf8.ValidString(key) {
			return // encoding/json replaces invalid UTF-8
		}
		got, found := Field(doc, key)
		want, wanted := fieldByJSON(doc, key)
		if got != want || found != wanted {
			t.Errorf("%q key %q: got %q %v, encoding/json %q %v", doc, key, got, found, want, wanted)
		}
	})
}

func FuzzString(f *testing.F) {
	f.Add("a\"b\\c\n\x00é\xff😀</script>")
	f.Fuzz(func(t *testing.T, s string) {
		var back string
		if err := json.Unmarshal(AppendString(nil, s), &back); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Errorf("%q came back as %q", s, back)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(frame([]string{"CNI_COMMAND=DEL"}, "{}", false))
	f.Add([]byte("weft\x01\x01\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00="))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			return
		}
		if r.Size() != len(b) || len(r.Stdin()) != r.Conf {
			t.Errorf("sizes differ: %+v of %d bytes", r.Header, len(b))
		}
		_ = r.Getenv("CNI_COMMAND")
		again := make([]byte, RequestHeader)
		r.Put(again)
		if !bytes.Equal(again, b[:RequestHeader]) {
			t.Errorf("header %x written as %x", b[:RequestHeader], again)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(AppendAnswer(nil, 1, []byte("{}")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAnswer(b)
		if err == nil && (a.Len < 0 || a.Len > MaxAnswer || a.Exit < 0 || a.Exit > 255) {
			t.Errorf("%x: %+v", b, a)
		}
	})
}

func TestQueueNamesSort(t *testing.T) {
	names := []string{QueueName(999, 4), QueueName(1000, 3), QueueName(1000, 20), QueueName(1<<62, 1)}
	if !slices.IsSorted(names) {
		t.Errorf("not in order of time: %q", names)
	}
	for path, want := range map[string]string{"/run/weft/agent.sock": "/run/weft/queue", "/a": "//queue", "a": "./queue"} {
		if got := QueueDir(path); got != want {
			t.Errorf("QueueDir(%s) = %s, want %s", path, got, want)
		}
	}
}

func TestAgentPlugin(t *testing.T) {
	for argv0, want := range map[string]string{
		"/opt/cni/bin/calico": "calico", "calico-ipam": "calico-ipam", "./whereabouts": "whereabouts", "/a/weft": "weft",
		"/opt/cni/bin/weft-cni": "", "/opt/calico/multus": "", "calico/": "", "": "",
	} {
		if got := AgentPlugin(argv0); got != want {
			t.Errorf("AgentPlugin(%q) = %q, want %q", argv0, got, want)
		}
	}
}

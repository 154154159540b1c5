// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func environ(pairs ...string) func(string) string {
	env := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		env[k] = v
	}
	return func(k string) string { return env[k] }
}

func code(err error) model.Code {
	var f *model.Error
	if errors.As(err, &f) {
		return f.Code
	}
	return 0
}

func TestParseCall(t *testing.T) {
	conf := `{"cniVersion":"1.1.0","name":"net","type":"bridge","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}`
	full := []string{
		"CNI_CONTAINERID=c1", "CNI_NETNS=/run/netns/x", "CNI_IFNAME=eth0", "CNI_PATH=/a:/b", "CNI_ARGS=IgnoreUnknown=1;K=V",
	}
	got, err := ParseCall(environ(append(full, "CNI_COMMAND=ADD", "CNI_NETNS_OVERRIDE=TRUE")...), []byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	want := Call{Command: "ADD", Conf: []byte(conf), NetnsOverride: true, Request: model.Request{
		Network: "net", CNIVersion: "1.1.0", ContainerID: "c1", Netns: "/run/netns/x", IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K", "V"}}, CNIPath: []string{"/a", "/b"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	gc, err := ParseCall(environ("CNI_COMMAND=GC", "CNI_PATH=/a"), []byte(conf))
	if err != nil || len(gc.Valid) != 1 ||
		gc.Valid[0] != (model.AttachmentKey{Network: "net", ContainerID: "c1", IfName: "eth0"}) {
		t.Errorf("GC: %v %v", gc.Valid, err)
	}
	if v, err := ParseCall(environ("CNI_COMMAND=VERSION"), nil); err != nil || v.Command != Version {
		t.Errorf("VERSION: %v %v", v, err)
	}
}

func TestBadCalls(t *testing.T) {
	const good = `{"cniVersion":"1.1.0","name":"net","type":"bridge"}`
	base := []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=/x", "CNI_IFNAME=eth0", "CNI_PATH=/a"}
	for name, tc := range map[string]struct {
		env  []string
		conf string
		code model.Code
		want []string
	}{
		"no command":   {env: []string{}, code: 4, want: []string{"CNI_COMMAND"}},
		"unknown verb": {env: []string{"CNI_COMMAND=UPDATE"}, code: 4, want: []string{"CNI_COMMAND", "UPDATE"}},
		"all missing": {
			env: []string{"CNI_COMMAND=ADD"}, code: 4, want: []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"},
		},
		"DEL missing": {
			env: []string{"CNI_COMMAND=DEL"}, code: 4, want: []string{"CNI_CONTAINERID, CNI_IFNAME, CNI_PATH"},
		},
		"GC missing": {env: []string{"CNI_COMMAND=GC"}, code: 4, want: []string{"missing: CNI_PATH"}},
		"bad id":     {env: append(base, "CNI_CONTAINERID=../x"), code: 4, want: []string{"CNI_CONTAINERID", `"../x"`}},
		"long ifname": {
			env: append(base, "CNI_IFNAME=a123456789012345"), code: 4,
			want: []string{"CNI_IFNAME", "16 characters", "at most 15"},
		},
		"ifname slash": {env: append(base, "CNI_IFNAME=a/b"), code: 4, want: []string{"CNI_IFNAME"}},
		"both bad": {
			env: append(base, "CNI_IFNAME=..", "CNI_CONTAINERID=-"), code: 4, want: []string{"CNI_IFNAME", "CNI_CONTAINERID"},
		},
		"args": {env: append(base, "CNI_ARGS=A=B=C"), code: 4, want: []string{"CNI_ARGS", `"A=B=C"`}},
		"args bool": {
			env: append(base, "CNI_ARGS=IgnoreUnknown=maybe"), code: 4, want: []string{"IgnoreUnknown", "maybe"},
		},
		"empty":     {env: base, conf: " ", code: 6, want: []string{"empty"}},
		"syntax":    {env: base, conf: "{\n \"name\": net}", code: 6, want: []string{"line 2 column 11"}},
		"array":     {env: base, conf: "[]", code: 6, want: []string{"it is array, want object"}},
		"null":      {env: base, conf: "null", code: 6, want: []string{"null"}},
		"name type": {env: base, conf: `{"name":1}`, code: 6, want: []string{"name is number, want string"}},
		"no name":   {env: base, conf: `{"cniVersion":"1.0.0"}`, code: 7, want: []string{"name is missing"}},
		"bad name":  {env: base, conf: `{"name":"a b"}`, code: 7, want: []string{`"a b"`}},
		"version":   {env: base, conf: `{"name":"a","cniVersion":"2.0.0"}`, code: 1, want: []string{"2.0.0", "1.1.0"}},
		"too large": {
			env: base, conf: `{"name":"` + strings.Repeat("a", 1<<20) + `"}`, code: 6, want: []string{"at most 1048576"},
		},
		"CHECK in 0.3.1": {
			env: append(base, "CNI_COMMAND=CHECK"), conf: `{"name":"a","cniVersion":"0.3.1"}`, code: 1,
			want: []string{"no CHECK"},
		},
		"STATUS in 1.0": {
			env: append(base, "CNI_COMMAND=STATUS"), conf: `{"name":"a","cniVersion":"1.0.0"}`, code: 1,
			want: []string{"no STATUS"},
		},
		"GC in 1.0": {
			env: append(base, "CNI_COMMAND=GC"), conf: `{"name":"a","cniVersion":"1.0.0"}`, code: 1, want: []string{"no GC"},
		},
		"GC no list": {env: append(base, "CNI_COMMAND=GC"), conf: good, code: 7, want: []string{"cni.dev/valid-attachments"}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := tc.conf
			if conf == "" {
				conf = good
			}
			_, err := ParseCall(environ(tc.env...), []byte(conf))
			if code(err) != tc.code {
				t.Fatalf("error %v with code %d, want %d", err, code(err), tc.code)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
	if _, err := ParseCall(environ(), nil); !errors.Is(err, ErrNoCommand) {
		t.Errorf("no command: %v", err)
	}
}

func FuzzParseCall(f *testing.F) {
	f.Add("ADD", "c1", "eth0", "IgnoreUnknown=1;A=B", `{"name":"n","cniVersion":"1.0.0"}`)
	f.Add("GC", "", "", "", `{"name":"n","cniVersion":"1.1.0","cni.dev/valid-attachments":[{"containerID":"x"}]}`)
	f.Add("DEL", "-", "a b", "=;", `{"name":{}}`)
	f.Fuzz(func(t *testing.T, command, id, ifName, args, conf string) {
		env := environ("CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_IFNAME="+ifName, "CNI_ARGS="+args, "CNI_PATH=/a",
			"CNI_NETNS=/x")
		c, err := ParseCall(env, []byte(conf))
		if err != nil {
			if code(err) == 0 {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		if c.Command == Add &&
			(strings.ContainsAny(c.Request.ContainerID+c.Request.IfName+c.Request.Network, "/ \n\x00") ||
				len(c.Request.IfName) > 15) {
			t.Fatalf("accepted %+v", c.Request)
		}
	})
}

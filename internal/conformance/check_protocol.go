// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

func protocolChecks() []judgment {
	return []judgment{
		{item: 12, run: unknownField},
		{item: 15, bare: true, run: malformedParameters},
		{item: 16, run: unusableName, without: func(s *subject) string {
			if s.role == giver || s.typ == "loopback" {
				return "it uses no interface name of the caller's"
			}
			return ""
		}},
		{item: 17, bare: true, run: exitCodes},
		{item: 18, run: cleanOutput},
		{item: 51, bare: true, run: versionPrinted},
		{item: 83, bare: true, run: versionConsistent},
		{item: 84, bare: true, run: errorObject},
		{item: 85, bare: true, run: errorCodes},
		{item: 86, bare: true, run: namedVariables},
		{item: 87, bare: true, run: statusCodes},
	}
}

func unknownField(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	r.conf["kitUnknownKey"] = map[string]any{"a": []int{1}}
	a := w.do(r)
	if a.ok() || a.refused() && a.code() == 2 {
		return pass()
	}
	return fail("an unknown key: %s", a)
}

func malformedParameters(w *world) verdict {
	var bad []string
	for _, c := range []struct{ key, value string }{
		{"CNI_CONTAINERID", ""},
		{"CNI_CONTAINERID", "../kit"},
		{"CNI_CONTAINERID", "-kit"},
		{"CNI_CONTAINERID", "kit pod"},
		{"CNI_IFNAME", ""},
		{"CNI_IFNAME", "sixteencharacter"},
		{"CNI_IFNAME", ".."},
		{"CNI_IFNAME", "a/b"},
	} {
		p, err := w.newPod()
		if err != nil {
			return broken(err)
		}
		r := w.request(add, p)
		r.env[c.key] = c.value
		if a := w.do(r); !a.refused() {
			bad = append(bad, fmt.Sprintf("%s=%q: %s", c.key, c.value, a))
		}
	}
	if bad != nil {
		return fail("%s", strings.Join(bad, "; "))
	}
	return pass()
}

// unusableName asks a main plugin for the name that lo has, and a chained one to work on an interface that is not
// there.
func unusableName(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	switch {
	case w.sub.role == maker:
		r.env["CNI_IFNAME"] = "lo"
	case slices.Contains([]string{"tuning", "vrf", "sbr", "bandwidth"}, w.sub.typ):
		r.env["CNI_IFNAME"] = "nosuch0"
	default:
		return notApplied("it works on the addresses of prevResult, whatever the interface is called")
	}
	if a := w.do(r); !a.refused() {
		return fail("CNI_IFNAME=%s: %s", r.env["CNI_IFNAME"], a)
	}
	return pass()
}

// impossible is an ADD that cannot succeed: a main plugin gets a namespace that does not exist, a chained one no
// prevResult, an IPAM plugin no container.
func impossible(w *world) (what string, a answer, err error) {
	p, err := w.newPod()
	if err != nil {
		return "", answer{}, err
	}
	r := w.request(add, p)
	switch w.sub.role {
	case maker:
		what = "a namespace that does not exist"
		r.env["CNI_NETNS"] = w.dir + "/netns/nosuch"
	case chained:
		what = "no prevResult"
		delete(r.conf, "prevResult")
	case giver:
		what = "no CNI_CONTAINERID"
		delete(r.env, "CNI_CONTAINERID")
	}
	return what, w.do(r), nil
}

func exitCodes(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	if a := w.raw(w.request(add, p), []byte("this is no JSON")); !a.refused() {
		return fail("a configuration that is no JSON: %s", a)
	} else if a.fault() == nil {
		return fail("a configuration that is no JSON: no error object: %s", a)
	}
	what, a, err := impossible(w)
	if err != nil {
		return broken(err)
	}
	if !a.refused() {
		return fail("%s: %s", what, a)
	}
	if a.fault() == nil {
		return fail("%s: no error object: %s", what, a)
	}
	if a := w.do(request{verb: "NOSUCH", conf: w.request(add, p).conf, env: w.request(add, p).env}); !a.refused() {
		return fail("an unknown CNI_COMMAND: %s", a)
	}
	return pass()
}

func cleanOutput(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	a := w.do(w.request(add, p))
	if !a.ok() {
		return broken(wish(a))
	}
	if _, err := a.result(); err != nil {
		return fail("ADD: %v", err)
	}
	p.final = a.stdout
	silent := []answer{}
	if w.version >= "0.4.0" {
		silent = append(silent, w.do(w.request(check, p)))
	}
	if w.version >= "1.1.0" {
		silent = append(silent, w.do(w.request(status, nil)), w.do(w.gcRequest(p)))
	}
	silent = append(silent, w.do(w.request(del, p)))
	for _, a := range silent {
		if a.ok() && len(bytes.TrimSpace(a.stdout)) > 0 {
			return fail("%s succeeds and prints %s", a.verb, short(string(a.stdout)))
		}
	}
	return pass()
}

// versions is the answer to VERSION.
type versions struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions"`
}

func (w *world) versions() (versions, error) {
	var v versions
	a := w.do(request{
		verb: version, conf: map[string]any{"cniVersion": "1.0.0"}, env: map[string]string{"CNI_PATH": joinPath(w.path)},
	})
	if err := wish(a); err != nil {
		return v, err
	}
	if err := one(a.stdout, &v); err != nil {
		return v, fmt.Errorf("VERSION prints no JSON object: %w: %s", err, short(string(a.stdout)))
	}
	return v, nil
}

func versionPrinted(w *world) verdict {
	v, err := w.versions()
	switch {
	case err != nil:
		return fail("%v", err)
	case v.CNIVersion == "" || len(v.Supported) == 0:
		return fail("cniVersion is %q, supportedVersions is %q", v.CNIVersion, v.Supported)
	}
	return pass()
}

func versionConsistent(w *world) verdict {
	v, err := w.versions()
	if err != nil {
		return fail("%v", err)
	}
	for _, s := range append(v.Supported, v.CNIVersion) {
		if !slices.Contains(known(), s) && strings.Count(s, ".") != 2 {
			return fail("%q is no version of the specification", s)
		}
	}
	if v.CNIVersion != "1.0.0" && !slices.Contains(v.Supported, v.CNIVersion) {
		return fail("cniVersion %s is not among supportedVersions %v", v.CNIVersion, v.Supported)
	}
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	r := w.request(add, p)
	r.conf["cniVersion"] = "99.0.0"
	if a := w.do(r); !a.refused() {
		return fail("cniVersion 99.0.0, which it does not support: %s", a)
	} else if a.code() != 1 {
		return fail("cniVersion 99.0.0: code 1 is wanted: %s", a)
	}
	return pass()
}

func errorObject(w *world) verdict {
	_, a, err := impossible(w)
	if err != nil {
		return broken(err)
	}
	f := a.fault()
	switch {
	case !a.refused() || f == nil:
		return fail("no error object: %s", a)
	case f.Code == nil || *f.Code == 0:
		return fail("the error object has no code: %s", short(string(a.stdout)))
	case f.Msg == "":
		return fail("the error object has no msg: %s", short(string(a.stdout)))
	case f.CNIVersion == "":
		return fail("the error object has no cniVersion: %s", short(string(a.stdout)))
	}
	return pass()
}

// errorCodes looks at every error that the plugin has given so far.
func errorCodes(w *world) verdict {
	listed := []int{1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51} // 8, an invalid namespace, is the reference library's
	for _, a := range w.prog.said {
		if f := a.fault(); a.refused() && f != nil && f.Code != nil && *f.Code < 100 && !slices.Contains(listed, *f.Code) {
			return fail("%s", a)
		}
	}
	return pass()
}

func statusCodes(w *world) verdict {
	for _, a := range w.prog.said {
		if c := a.code(); a.verb != status && (c == 50 || c == 51) {
			return fail("%s", a)
		}
	}
	return pass()
}

func namedVariables(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return broken(err)
	}
	for _, key := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"} {
		r := w.request(add, p)
		delete(r.env, key)
		a := w.do(r)
		switch {
		case !a.refused():
			return fail("without %s: %s", key, a)
		case a.code() != 4:
			return fail("without %s: code 4 is wanted: %s", key, a)
		case !strings.Contains(a.text(), key):
			return fail("without %s: the message does not name it: %s", key, a)
		}
	}
	for _, a := range w.prog.said {
		if a.code() == 2 && strings.TrimSpace(a.text()) == "" {
			return fail("code 2 without a message: %s", a)
		}
	}
	return pass()
}

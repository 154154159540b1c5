// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

func protocolChecks() []itemCheck {
	return []itemCheck{
		{item: 12, run: unknownField},
		{item: 15, noKernelNeeds: true, run: malformedParameters},
		{item: 16, run: unusableIfName, notApplicable: func(s *subject) string {
			if s.role == ipamPlugin || s.typ == "loopback" {
				return "it does not use CNI_IFNAME"
			}
			return ""
		}},
		{item: 17, noKernelNeeds: true, run: exitCodes},
		{item: 18, run: cleanOutput},
		{item: 51, noKernelNeeds: true, run: versionPrinted},
		{item: 83, noKernelNeeds: true, run: versionConsistent},
		{item: 84, noKernelNeeds: true, run: errorObject},
		{item: 85, noKernelNeeds: true, run: errorCodes},
		{item: 86, noKernelNeeds: true, run: namedVariables},
		{item: 87, noKernelNeeds: true, run: statusCodes},
	}
}

func unknownField(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	r := w.request(add, p)
	r.conf["kitUnknownKey"] = map[string]any{"a": []int{1}}
	a := w.execute(r)
	if a.ok() || a.failed() && a.code() == 2 {
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
			return aborted(err)
		}
		r := w.request(add, p)
		r.env[c.key] = c.value
		if a := w.execute(r); !a.failed() {
			bad = append(bad, fmt.Sprintf("%s=%q: %s", c.key, c.value, a))
		}
	}
	if bad != nil {
		return fail("%s", strings.Join(bad, "; "))
	}
	return pass()
}

// unusableIfName calls a main plugin with the name lo, and a chained one with an interface that does not exist.
func unusableIfName(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	r := w.request(add, p)
	switch {
	case w.sub.role == mainPlugin:
		r.env["CNI_IFNAME"] = "lo"
	case slices.Contains([]string{"tuning", "vrf", "sbr", "bandwidth"}, w.sub.typ):
		r.env["CNI_IFNAME"] = "nosuch0"
	default:
		return notApplied("it uses the addresses of prevResult, not the interface name")
	}
	if a := w.execute(r); !a.failed() {
		return fail("CNI_IFNAME=%s: %s", r.env["CNI_IFNAME"], a)
	}
	return pass()
}

// failingAdd calls ADD so that it must fail: a main plugin gets a namespace that does not exist, a chained one no
// prevResult, an IPAM plugin no container ID.
func failingAdd(w *world) (what string, a response, err error) {
	p, err := w.newPod()
	if err != nil {
		return "", response{}, err
	}
	r := w.request(add, p)
	switch w.sub.role {
	case mainPlugin:
		what = "a namespace that does not exist"
		r.env["CNI_NETNS"] = w.dir + "/netns/nosuch"
	case metaPlugin:
		what = "no prevResult"
		delete(r.conf, "prevResult")
	case ipamPlugin:
		what = "no CNI_CONTAINERID"
		delete(r.env, "CNI_CONTAINERID")
	}
	return what, w.execute(r), nil
}

func exitCodes(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	if a := w.executeRaw(w.request(add, p), []byte("this is not JSON")); !a.failed() {
		return fail("a configuration that is not JSON: %s", a)
	} else if a.cniError() == nil {
		return fail("a configuration that is not JSON: no error object: %s", a)
	}
	what, a, err := failingAdd(w)
	if err != nil {
		return aborted(err)
	}
	if !a.failed() {
		return fail("%s: %s", what, a)
	}
	if a.cniError() == nil {
		return fail("%s: no error object: %s", what, a)
	}
	if a := w.execute(request{verb: "NOSUCH", conf: w.request(add, p).conf, env: w.request(add, p).env}); !a.failed() {
		return fail("an unknown CNI_COMMAND: %s", a)
	}
	return pass()
}

func cleanOutput(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	a := w.execute(w.request(add, p))
	if !a.ok() {
		return aborted(asError(a))
	}
	if _, err := a.result(); err != nil {
		return fail("ADD: %v", err)
	}
	p.final = a.stdout
	silent := []response{}
	if w.version >= "0.4.0" {
		silent = append(silent, w.execute(w.request(check, p)))
	}
	if w.version >= "1.1.0" {
		silent = append(silent, w.execute(w.request(status, nil)), w.execute(w.gcRequest(p)))
	}
	silent = append(silent, w.execute(w.request(del, p)))
	for _, a := range silent {
		if a.ok() && len(bytes.TrimSpace(a.stdout)) > 0 {
			return fail("%s succeeds and prints %s", a.verb, short(string(a.stdout)))
		}
	}
	return pass()
}

// versions is the result of VERSION.
type versions struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions"`
}

func (w *world) versions() (versions, error) {
	var v versions
	a := w.execute(request{
		verb: version, conf: map[string]any{"cniVersion": "1.0.0"}, env: map[string]string{"CNI_PATH": joinPath(w.path)},
	})
	if err := asError(a); err != nil {
		return v, err
	}
	if err := decodeOne(a.stdout, &v); err != nil {
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
		if !slices.Contains(specVersions(), s) && strings.Count(s, ".") != 2 {
			return fail("%q is not a version of the specification", s)
		}
	}
	if v.CNIVersion != "1.0.0" && !slices.Contains(v.Supported, v.CNIVersion) {
		return fail("cniVersion %s is not among supportedVersions %v", v.CNIVersion, v.Supported)
	}
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	r := w.request(add, p)
	r.conf["cniVersion"] = "99.0.0"
	if a := w.execute(r); !a.failed() {
		return fail("cniVersion 99.0.0, which it does not support: %s", a)
	} else if a.code() != 1 {
		return fail("cniVersion 99.0.0: want code 1: %s", a)
	}
	return pass()
}

func errorObject(w *world) verdict {
	_, a, err := failingAdd(w)
	if err != nil {
		return aborted(err)
	}
	f := a.cniError()
	switch {
	case !a.failed() || f == nil:
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

// errorCodes checks the errors of all calls so far.
func errorCodes(w *world) verdict {
	allowed := []int{1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51} // 8, an invalid namespace, is defined by the reference library
	for _, a := range w.prog.responses {
		if f := a.cniError(); a.failed() && f != nil && f.Code != nil && *f.Code < 100 && !slices.Contains(allowed, *f.Code) {
			return fail("%s", a)
		}
	}
	return pass()
}

func statusCodes(w *world) verdict {
	for _, a := range w.prog.responses {
		if c := a.code(); a.verb != status && (c == 50 || c == 51) {
			return fail("%s", a)
		}
	}
	return pass()
}

func namedVariables(w *world) verdict {
	p, err := w.newPod()
	if err != nil {
		return aborted(err)
	}
	for _, key := range []string{"CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"} {
		r := w.request(add, p)
		delete(r.env, key)
		a := w.execute(r)
		switch {
		case !a.failed():
			return fail("without %s: %s", key, a)
		case a.code() != 4:
			return fail("without %s: want code 4: %s", key, a)
		case !strings.Contains(a.text(), key):
			return fail("without %s: the message does not name it: %s", key, a)
		}
	}
	for _, a := range w.prog.responses {
		if a.code() == 2 && strings.TrimSpace(a.text()) == "" {
			return fail("code 2 without a message: %s", a)
		}
	}
	return pass()
}

// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"encoding/json"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/node/multuslog"
)

// callLog writes what a call does to the log file of its configuration, in the lines of Multus.
type callLog struct {
	to   *multuslog.Log
	call cni.Call
	how  multinet.Logging
}

// logOf returns the log of a call.
func (vs *verbs) logOf(call cni.Call) callLog {
	how, err := multinet.ParseLogging(call.Conf, vs.networks.Root)
	if err != nil {
		vs.multusLog.Problem(err)
	}
	return callLog{vs.multusLog, call, how}
}

// begun logs the call as the runtime made it.
func (l callLog) begun() {
	if l.how.Level < multinet.LogDebug {
		return
	}
	r := l.call.Request
	l.to.Write(l.how, multinet.LogDebug, "Cmd%s: %s %s %s %v %s", title(l.call.Command), r.ContainerID, r.Netns, r.IfName,
		r.Args, compact(l.call.Conf))
}

// failed logs why the call failed.
func (l callLog) failed(err error) {
	if l.how.Level < multinet.LogError {
		return
	}
	p := podOf(l.call.Request)
	what := map[string]string{
		cni.Add: "adding container to", cni.Del: "deleting container from", cni.Check: "checking container in",
	}[l.call.Command]
	if what == "" {
		what = l.call.Command + " of"
	}
	l.to.Write(l.how, multinet.LogError, "[%s/%s/%s:%s]: error %s network %q: %v", p.Namespace, p.Name, p.UID,
		l.call.Request.Network, what, l.call.Request.Network, err)
}

// added logs a network that a pod got.
func (l callLog) added(a multinet.Attachment, result model.Result) {
	if l.how.Level < multinet.LogVerbose {
		return
	}
	text, err := cni.FormatResult(result, a.Request.CNIVersion)
	if err != nil {
		text = []byte(err.Error())
	}
	p := podOf(a.Request)
	l.to.Write(l.how, multinet.LogVerbose, "Add: %s:%s:%s:%s(%s):%s %s", p.Namespace, p.Name, p.UID, a.Label,
		a.Network.Name, a.Request.IfName, compact(text))
}

// deleted logs a network that a pod had.
func (l callLog) deleted(n model.Network, r model.Request) {
	if l.how.Level < multinet.LogVerbose {
		return
	}
	p := podOf(r)
	l.to.Write(l.how, multinet.LogVerbose, "Del: %s:%s:%s:%s:%s %s", p.Namespace, p.Name, p.UID, n.Name, r.IfName,
		compact(n.Raw))
}

// checked logs a network that is as the ADD made it.
func (l callLog) checked(label string, n model.Network, r model.Request) {
	if l.how.Level < multinet.LogVerbose {
		return
	}
	p := podOf(r)
	l.to.Write(l.how, multinet.LogVerbose, "Check: %s:%s:%s(%s):%s %s", p.Namespace, p.Name, label, n.Name, r.IfName,
		compact(n.Raw))
}

// labelOf returns the name by which the pod asked for a recorded network.
func labelOf(r model.Request) string {
	if r.Origin != nil {
		return r.Origin.Network
	}
	return r.Network
}

// podOf returns the pod of a request for the log. Multus has a word for a UID that it does not know.
func podOf(r model.Request) model.PodRef {
	var p model.PodRef
	if r.Origin != nil {
		p = r.Origin.Pod
	}
	fill := func(to *string, arg string) {
		if *to == "" {
			*to, _ = r.Arg(arg)
		}
	}
	fill(&p.Namespace, "K8S_POD_NAMESPACE")
	fill(&p.Name, "K8S_POD_NAME")
	fill(&p.UID, "K8S_POD_UID")
	if p.UID == "" {
		p.UID = "unknownUID"
	}
	return p
}

// title returns a verb as Multus names its function: Add for ADD.
func title(verb string) string {
	switch verb {
	case cni.Add:
		return "Add"
	case cni.Del:
		return "Del"
	case cni.Check:
		return "Check"
	}
	return verb
}

// compact returns JSON in one line.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(bytes.TrimSpace(text))
	}
	return b.String()
}

// callOf returns the call that attached a running pod's first network, for a change of the others; one without a
// configuration, and so without a log, if that is not recorded.
func callOf(first attach.Record, verb string) cni.Call {
	call, err := multinet.Call(first.Request)
	if err != nil {
		return cni.Call{}
	}
	call.Command, call.Request.Origin = verb, first.Request.Origin
	return call
}

// SPDX-License-Identifier: Apache-2.0

// Package inspect reports the agent's attachments to operators: a list, and a CHECK of all.
package inspect

import (
	"context"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// checkAllTime limits a CHECK of all attachments; the report counts those that were not checked.
const checkAllTime = 30 * time.Second

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Attachments checks the attachments.
type Attachments interface {
	CheckAll(ctx context.Context) (model.CheckReport, error)
}

// Inspector reports the agent's attachments.
type Inspector struct {
	Records     Records
	Attachments Attachments
	// Directory returns the host-local directory that all addresses of an attachment are from, empty if there is none.
	Directory func(attach.Record) string
	Log       *slog.Logger
}

// OpenPod opens the namespace of a pod (namespace/name) on this node. The caller closes it.
func OpenPod(records Records, pod string) (*netns.NS, error) {
	all, err := records.List()
	if err != nil {
		return nil, err
	}
	for _, rec := range all {
		// A namespace of another ID at the path is another pod's.
		if end, ok := rec.Endpoint(); ok && end.Pod.String() == pod && !netns.Gone(end.Netns, end.NetnsID) {
			return netns.Open(end.Netns)
		}
	}
	return nil, model.Errorf(model.CodeNotAvailable, "it may have been deleted meanwhile",
		"pod %s is not on this node", pod)
}

// CheckAll compares all attachments with the kernel, for weft doctor.
func (i *Inspector) CheckAll(ctx context.Context) model.CheckReport {
	ctx, cancel := context.WithTimeout(ctx, checkAllTime)
	defer cancel()
	report, err := i.Attachments.CheckAll(ctx)
	if err != nil {
		i.Log.Warn("some records could not be checked", "err", err)
	}
	return report
}

// attachment is one entry of /attachments.
type attachment struct {
	model.AttachmentKey
	Stage  attach.Stage  `json:"stage"`
	Since  time.Time     `json:"since"`
	Pod    string        `json:"pod,omitempty"`
	Netns  string        `json:"netns,omitempty"`
	Result *model.Result `json:"result,omitempty"`
	// Ports are the ports of the node that a container engine has published.
	Ports []model.PublishedPort `json:"ports,omitempty"`
	// Filed is the host-local directory that all its addresses are from.
	Filed string `json:"filed,omitempty"`
}

// List returns the ledger for operators.
func (i *Inspector) List() (any, error) {
	records, err := i.Records.List()
	all := make([]attachment, 0, len(records))
	for _, rec := range records {
		namespace, _ := rec.Request.Arg("K8S_POD_NAMESPACE")
		name, _ := rec.Request.Arg("K8S_POD_NAME")
		one := attachment{
			AttachmentKey: rec.Key(), Stage: rec.Stage, Since: rec.Since(), Netns: rec.Request.Netns, Result: rec.Result,
			Ports: rec.PublishedPorts(), Filed: i.Directory(rec),
		}
		if name != "" {
			one.Pod = namespace + "/" + name
		}
		all = append(all, one)
	}
	return all, err
}

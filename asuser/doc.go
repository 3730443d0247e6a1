// Package asuser carries out each run as the Unix user that it belongs to. It implements the ports of package run that act on the cluster –
// [run.Submitter], [run.Canceller] and [run.Workspace] – by finding the run's user and handing the call to that user's own parts, which log
// in as that user and nobody else. It knows neither SSH nor certificates: whoever makes it says how a user's parts are made.
//
// A user's parts are made when a run first needs them, and closed when nothing has used them for a while. Their number has a bound: a
// further user takes the place of the one that has been idle longest, or waits until one is idle.
package asuser

// The site's search runs in a Worker, which browsers refuse to pages opened from the disk; there a hidden frame stands in for it.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.window = frame.contentWindow;
    this.window.document.open(); // otherwise Firefox may put an empty document in place of this one
    this.window.document.write("<body>");
    this.window.document.close();
    this.window.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.window.document.createElement("script");
    this.loaded = new Promise((resolve) => (script.onload = resolve));
    script.src = url;
    this.window.document.body.append(script);
  }

  postMessage(data) {
    this.loaded.then(() => this.window.dispatchEvent(new MessageEvent("message", { data })));
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;

import{In as e,On as t}from"./format-eZQ5Uvmq.js";import{t as n}from"./address-CfauMKi7.js";var r=e(t(),1);function i(e,t){let[i,a]=n(),o=i.getAll(e),[s,c]=(0,r.useState)(o),l=(0,r.useRef)(o.join(`
`)),u=o.join(`
`);return(0,r.useEffect)(()=>{u!==l.current&&(l.current=u,c(u?u.split(`
`):[]))},[u]),[s,n=>{let r=s.filter(e=>e!==n),i=r.length<s.length?r:[...r,n].slice(-t);l.current=i.join(`
`),c(i),a({[e]:i},!0)}]}export{i as t};